# trainer: build, test, install. GNU make; everything is built below O (default: build).
#
#   make                 the program and its library
#   make demo            installs what is missing, builds, trains on synthetic digits with several ranks
#   make test            installs what is missing, builds, runs the tests       make test k=graph  only those with "graph" in their path
#   make bench           speed beside PyTorch's and the machine's: tools/bench says what it takes            make bench k=loader
#   make test-all        the tests, again under sanitizers, fuzzers, long tests: hours             make fuzz       FUZZ_SEC=60 each
#   make help            this page
#   make info            what was found, where, in which version
#   make lint            floors and names                                       make format        what you changed, by clang-format
#   make reference       the pages of docs/ that the program itself writes: config, layers, commands, records, elsewhere
#   make docs            the pages as a site in build/site (cmark-gfm or pandoc)      make docs-images  docs/img anew (chromium)
#   make install         PREFIX (default /usr/local), LIBDIR, DESTDIR                   make uninstall
#   make labs            the lab pages of docs/labs, with points                make dist         a tarball of the last commit
#   make configure NAME=VALUE ...   keeps settings in config.mk; an empty value forgets one
#
# Settings: command line, environment, or config.mk. CC CFLAGS CPPFLAGS LDFLAGS LDLIBS NVCCFLAGS are yours; ours are added to them.
# V=1 shows commands, WERROR=1 makes warnings errors, SAN="address undefined" or SAN=thread builds with sanitizers, CUDA=0 leaves CUDA
# out, CUDA=1 insists on it. ARCH=FLAGS builds for other processors than this machine's, ARCH= for any of the architecture,
# ARCH=portable for several, with kernels for each, which the program chooses from: packages are built so.
O          ?= build
-include config.mk
.SUFFIXES:
.DELETE_ON_ERROR:
.PRECIOUS: $(O)/%.o
.DEFAULT_GOAL := all
comma      := ,
hash       := \#
ifeq ($(filter -j% --jobserver%,$(MAKEFLAGS)),)
MAKEFLAGS  += -j$(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
endif

# Recursive (=) on purpose: `configure` tells these defaults from what config.mk sets (:=).
ifeq ($(origin CC),default)
CC          = cc
endif
OBJCOPY    ?= objcopy
MPICC      ?= mpicc
MPIEXEC    ?= mpirun
PKG_CONFIG ?= pkg-config
CUDA_HOME  ?= $(patsubst %/bin/nvcc,%,$(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc)))
NVCC       ?= $(wildcard $(cuda_home)/bin/nvcc)
CUDA       ?= auto
CUDA_ARCH  ?= $(filter $(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch 2>/dev/null)),75 80 90 100 120)
PREFIX     ?= /usr/local
OPT        ?= -O3 -g
ARCH       ?= $(native)
SAN        ?=
settings   := O CC AR OBJCOPY MPICC MPIEXEC PKG_CONFIG HDF5_HOME DNNL_HOME JPEG PNG MICROHTTPD CUDA CUDA_HOME NVCC CUDA_ARCH CUDNN_HOME NCCL_HOME \
              PREFIX OPT ARCH SAN WERROR CFLAGS CPPFLAGS LDFLAGS LDLIBS NVCCFLAGS

# -- what is here: ask the compiler, with the flags that will be used ------------------------------------------------
have  = $(shell printf '$(hash)include <%s>\n' $(1) | $(CC) $(CPPFLAGS) $(CFLAGS) $(2) -E -x c - >/dev/null 2>&1 && echo 1)
pkg   = $(shell $(PKG_CONFIG) $(1) $(2) 2>/dev/null)
home  = $(if $(1),-I$(1)/include)
homel = $(if $(1),$(foreach d,$(wildcard $(1)/lib $(1)/lib64),-L$(d) -Wl$(comma)-rpath$(comma)$(d)))

# This machine: on Arm, -mcpu. A cross compiler knows no native.
machine      := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
native       := $(if $(filter aarch64,$(machine)),-mcpu=native,-march=native)
# ARCH=portable: what the kernels are compiled for; all other code is for the first.
isas_x86_64  := x86-64-v3 x86-64-v4
isas_aarch64 := armv8-a
isas          = $(if $(filter portable,$(ARCH)),$(isas_$(machine)))
march         = $(if $(filter portable,$(ARCH)),$(addprefix -march=,$(firstword $(isas))),$(ARCH))
cuda_home    := $(CUDA_HOME)
mpi_cflags   := $(shell $(MPICC) --showme:compile 2>/dev/null || $(MPICC) -show 2>/dev/null | tr ' ' '\n' | grep '^-I')
mpi_libs     := $(shell $(MPICC) --showme:link 2>/dev/null || $(MPICC) -show 2>/dev/null | tr ' ' '\n' | grep '^-[LlW]')
h5cc         := $(if $(HDF5_HOME)$(call pkg,--libs,hdf5),,$(shell h5cc -show 2>/dev/null))
hdf5_cflags  := $(or $(call home,$(HDF5_HOME)),$(filter -I%,$(h5cc)),$(call pkg,--cflags,hdf5))
hdf5_libs    := $(if $(HDF5_HOME),$(call homel,$(HDF5_HOME)) -lhdf5,$(or $(filter -L% -Wl%,$(h5cc)) $(call pkg,--libs,hdf5)) $(if $(call pkg,--libs,hdf5),,-lhdf5))
dnnl_cflags  := $(call home,$(DNNL_HOME))
dnnl_libs    := $(call homel,$(DNNL_HOME)) -ldnnl
other_pkgs   := jansson libxxhash zlib
other_cflags := $(foreach p,$(other_pkgs),$(call pkg,--cflags,$(p)))
other_libs   := $(or $(call pkg,--libs,jansson),-ljansson) $(or $(call pkg,--libs,libxxhash),-lxxhash) $(or $(call pkg,--libs,zlib),-lz)
# Optional: for `trainer import images`. JPEG=0, PNG=0: without.
have_jpeg    := $(if $(filter 0 no,$(JPEG)),,$(call have,stdio.h jpeglib.h,$(call pkg,--cflags,libjpeg)))
have_png     := $(if $(filter 0 no,$(PNG)),,$(call have,png.h,$(call pkg,--cflags,libpng)))
image_cflags := $(if $(have_jpeg),-DTR_HAVE_JPEG $(call pkg,--cflags,libjpeg)) $(if $(have_png),-DTR_HAVE_PNG $(call pkg,--cflags,libpng))
other_libs   += $(if $(have_jpeg),$(or $(call pkg,--libs,libjpeg),-ljpeg)) $(if $(have_png),$(or $(call pkg,--libs,libpng),-lpng))
# Optional: the HTTP server; the library itself is loaded when a server starts. MICROHTTPD=0: without.
have_mhd     := $(if $(filter 0 no,$(MICROHTTPD)),,$(call have,microhttpd.h,$(call pkg,--cflags,libmicrohttpd)))
http_cflags  := $(if $(have_mhd),-DTR_HAVE_MICROHTTPD $(call pkg,--cflags,libmicrohttpd))
cmocka_libs  := $(or $(call pkg,--libs,cmocka),-lcmocka)
cuda_cflags   = $(foreach d,$(cuda_home) $(CUDNN_HOME) $(NCCL_HOME),-I$(d)/include)

have_mpi     := $(call have,mpi.h,$(mpi_cflags))
have_hdf5    := $(call have,hdf5.h,$(hdf5_cflags))
have_dnnl    := $(call have,oneapi/dnnl/dnnl.h,$(dnnl_cflags))
have_jansson := $(call have,jansson.h,$(other_cflags))
have_xxhash  := $(call have,xxhash.h,$(other_cflags))
have_zlib    := $(call have,zlib.h,$(other_cflags))
have_cmocka  := $(call have,stdarg.h stddef.h setjmp.h stdint.h cmocka.h,$(call pkg,--cflags,cmocka))
have_cuda    := $(if $(filter 0 no,$(CUDA)),,$(if $(NVCC),$(call have,cuda_runtime.h cublasLt.h cudnn.h,$(cuda_cflags))))
have_cudnn   := $(if $(have_cuda),$(call have,cudnn.h,$(cuda_cflags)))
have_nccl    := $(if $(have_cuda),$(call have,nccl.h,$(cuda_cflags)))
missing      := $(strip $(if $(have_mpi),,MPI) $(if $(have_hdf5),,HDF5) $(if $(have_dnnl),,oneDNN) $(if $(have_jansson),,jansson) \
                $(if $(have_xxhash),,xxHash) $(if $(have_zlib),,zlib))

missing_run  := $(strip $(missing) $(if $(shell command -v $(firstword $(MPIEXEC)) 2>/dev/null),,$(firstword $(MPIEXEC))))
# As root the tests start a SLURM cluster, where tools/install-deps can get one.
missing_slurm = $(shell [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || PATH=$$PATH:/usr/sbin command -v slurmctld >/dev/null || echo SLURM)
missing_test := $(strip $(missing_run) $(if $(have_cmocka),,cmocka) $(missing_slurm))

$(if $(filter 1 yes,$(CUDA)),$(if $(have_cuda),,$(error CUDA=1, but no nvcc with cuda_runtime.h$(comma) cublasLt.h and cudnn.h under CUDA_HOME='$(cuda_home)'; set CUDA_HOME and CUDNN_HOME)))
$(if $(filter thread,$(SAN)),$(if $(filter-out thread undefined,$(SAN)),$(error SAN: thread excludes address; choose one)))

# The number in trainer/version.h, and the commit where this is a checkout.
commit  := $(if $(wildcard .git),$(shell git describe --always --dirty --exclude '*' 2>/dev/null))
number  := $(shell sed -n 's/^.define TRAINER_VERSION_[MP][A-Z]*  *\([0-9]\)/\1/p' include/trainer/version.h 2>/dev/null | paste -sd.)
version := $(or $(number),0)$(if $(commit),+$(subst -,.,$(commit)))

# -- flags ----------------------------------------------------------------------------------------------------------
warn    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-unused-parameter $(if $(filter 1,$(WERROR)),-Werror)
san     := $(SAN:%=-fsanitize=%) $(if $(SAN),-fno-omit-frame-pointer)
cflags   = -std=gnu11 -fPIC -fno-common -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp -MMD -MP -Iinclude -Isrc -D_GNU_SOURCE $(warn) $(OPT) $(march) $(san) \
           -ffile-prefix-map=$(CURDIR)=. $(mpi_cflags) $(hdf5_cflags) $(dnnl_cflags) $(other_cflags) $(CPPFLAGS) $(CFLAGS)
libs     = $(san) -fopenmp $(mpi_libs) $(hdf5_libs) $(dnnl_libs) $(other_libs) -ldl -lm -lpthread

# -- sources: a new file in a known folder needs no edit here ----------------------------------------------------------
find     = $(sort $(shell find $(1) -name '$(2)' 2>/dev/null))
# src/device/cuda is not in libtrainer.a: libtrainer_cuda.so is built where have_cuda, and loaded by dlopen.
cuda_src := $(strip $(if $(have_cuda),$(filter-out $(if $(have_nccl),,%/cuda_nccl.c %/cuda_nccl_load.c %/cuda_nccl_network.c),$(call find,src/device/cuda,*.c)) \
            $(call find,src/device/cuda,*.cu)))
cuda_lib := $(if $(cuda_src),$(O)/libtrainer_cuda.so)
# For `trainer plan --gpu`: a libcuda without a GPU, in a folder of its own that no loader searches.
cuda_stub := $(if $(cuda_lib),$(O)/trainer-cuda-stub/libcuda.so.1)
lib_c   := $(filter-out src/cmd/% src/device/cuda/% src/device/library/% src/device/stub/%,$(call find,src,*.c))
cmd_c   := $(call find,src/cmd,*.c)
test_c  := $(filter-out tests/hostcuda/% tests/library/% tests/gpu/%,$(call find,tests,*.c))
unit_c  := $(foreach c,$(test_c),$(if $(filter test_% make_%,$(notdir $(c))),$(c)))
help_c  := $(filter-out $(unit_c),$(test_c))
# What a device library is linked with in place of libtrainer.a: src/device/library.h.
library_c := src/device/library/services.c src/device/kernels.c src/device/tensor_types.c src/device/gpu_kinds.c src/base/str.c src/base/file.c src/base/folders.c src/base/cores.c src/base/host.c
# Compiled for each of isas, and linked into one object with one global name, the table of its kernels.
isa_c   := $(if $(isas),$(filter src/device/cpu/kernels/% src/device/cpu/winograd/% %/cpu_kernels.c %/cpu_peak.c,$(lib_c)))
isa_o     = $(isa_c:%.c=$(O)/isa/$(1)/%.o)
isa_table = tr_cpu_kernels_$(subst -,_,$(subst .,_,$(subst +,_,$(1))))
lib_o   := $(patsubst %.c,$(O)/%.o,$(filter-out $(isa_c),$(lib_c))) $(isas:%=$(O)/isa/%.o)
cmd_o   := $(cmd_c:%.c=$(O)/%.o)
help_o  := $(help_c:%.c=$(O)/%.o)
library_o := $(library_c:%.c=$(O)/%.o)
unit_x  := $(unit_c:%.c=$(O)/%)
bench_x := $(O)/tools/bench.d/loader
replay_x := $(O)/tools/replay
say      = $(if $(filter 1,$(V)),,@printf '  %-5s %s\n' $(1) $(@:$(O)/%=%);)
stack_usage := -fstack-usage
# A file that changes only when its content does: what depends on it is rebuilt when flags, version or the list of sources change.
keep     = @$(shell mkdir -p $(@D))$(file >$@.new,$(1))cmp -s $@.new $@ && rm -f $@.new || mv -f $@.new $@

.PHONY: all help demo dist docs docs-images labs test test-all fuzz test-programs bench deps info lint reference install uninstall configure format clean distclean kernel-resources FORCE
ifeq ($(missing),)
all: $(O)/trainer $(cuda_lib) $(cuda_stub)
test-programs: $(O)/libfail.so $(O)/libnap.so $(O)/libsecond.so $(replay_x) $(if $(k),$(foreach x,$(unit_x),$(if $(findstring $(k),$(x)),$(x))),$(unit_x))
else
all install test-programs:
	@echo "trainer: not found: $(missing)"
	@echo "  Debian, Ubuntu:       tools/install-deps (as root or with sudo); other systems: tools/install-deps --list"
	@echo "  installed elsewhere:  make configure MPICC=/path/mpicc HDF5_HOME=/path DNNL_HOME=/path CPPFLAGS=-I/path LDFLAGS=-L/path"
	@exit 1
endif
# These two get what is missing and start again, once.
install_and_retry = $(if $(deps_done),echo "trainer: still not found after tools/install-deps: $(1); see make info" && exit 1,tools/install-deps && exec $(MAKE) --no-print-directory $@ deps_done=1)
ifeq ($(missing_run),)
demo: all
	@MPIEXEC='$(MPIEXEC)' tools/demo $(O)
else
demo: ; @$(call install_and_retry,$(missing_run))
endif
ifeq ($(missing_test),)
test: all test-programs
	@tools/check-layers $(O)
	@MPIEXEC='$(MPIEXEC)' tools/run-tests $(O) $(if $(k),-k '$(k)')
else
test: ; @$(call install_and_retry,$(missing_test))
endif
bench: all $(bench_x)
	@MPIEXEC='$(MPIEXEC)' MPICC='$(MPICC)' tools/bench $(O) $(if $(k),-k '$(k)')
# Clang with libFuzzer; says so and does nothing where there is none. k=NAME: this one alone.
fuzz:
	@FUZZ_SEC='$(or $(FUZZ_SEC),60)' MAKE='$(MAKE)' tools/run-fuzz $(O) $(k) || [ $$? = 77 ]
test-all:
	@MAKE='$(MAKE)' MPIEXEC='$(MPIEXEC)' tools/test-all $(O)
# The lab pages, with points: docs/labs/README.md.
labs: all ; @MPIEXEC='$(MPIEXEC)' tools/labs -O $(O)
deps: ; @tools/install-deps

$(O)/trainer: $(cmd_o) $(O)/libtrainer.a $(O)/objects.stamp
	$(call say,LINK)$(CC) -o $@ $(cmd_o) $(O)/libtrainer.a $(LDFLAGS) $(libs) $(LDLIBS)
# ./trainer is the default build, or the first one; another build does not take it over.
	@{ [ -e trainer ] && [ $(O) != build ]; } || ln -sf $@ trainer 2>/dev/null || true
$(O)/libtrainer.a: $(lib_o) $(O)/objects.stamp
	$(call say,AR)rm -f $@ && $(AR) rc $@ $(lib_o)
$(O)/tests/libhelp.a: $(help_o) $(O)/objects.stamp
	@mkdir -p $(@D)
	$(call say,AR)rm -f $@ && $(AR) rc $@ $(help_o)
$(unit_x): $(O)/%: $(O)/%.o $(O)/tests/libhelp.a $(O)/libtrainer.a
	$(call say,LINK)$(CC) -o $@ $^ $(LDFLAGS) $(libs) $(cmocka_libs) $(LDLIBS)
$(bench_x) $(replay_x): $(O)/%: $(O)/%.o $(O)/libtrainer.a
	$(call say,LINK)$(CC) -o $@ $^ $(LDFLAGS) $(libs) $(LDLIBS)
# A device library for tests: what is not in it comes from the program by services.c alone.
$(O)/libsecond.so: $(O)/tests/library/second.o $(library_o)
	$(call say,LINK)$(CC) $(san) -shared -Wl,-Bsymbolic $(if $(SAN),,-Wl$(comma)-z$(comma)defs) -o $@ $^ -fopenmp -lrt -lm
# Device code for each architecture, from PTX that is made, slowly, twice: for Turing, and for all later GPUs, of which the kernels use
# nothing newer. The last PTX is kept: GPUs without device code compile it.
cuda_arch  := $(if $(have_cuda),$(CUDA_ARCH))
ampere     := $(firstword $(filter-out 75,$(cuda_arch)))
ptx_of      = $(if $(filter 75,$(1)),75,$(ampere))
code_of     = -gencode arch=compute_$(ptx_of)$(comma)code=$(2)_$(1)
nvcc_flags  = -std=c++17 -O3 -t2 -lineinfo -Xfatbin -compress-all -Iinclude -Isrc $(foreach a,$(cuda_arch),$(call code_of,$(a),sm)) \
             $(call code_of,$(or $(ampere),75),compute) -Xcompiler -fPIC$(comma)-fvisibility=hidden$(if $(filter 1,$(WERROR)),$(comma)-Werror) \
             -MMD -MP -Xptxas -v $(cuda_cflags) $(NVCCFLAGS)
# The C objects of both libraries: for GPUs, and for tests/hostcuda.
cuda_c_o  := $(patsubst %.c,$(O)/%.o,$(filter %.c,$(cuda_src)) $(if $(cuda_src),$(library_c)))
cuda_k_o  := $(patsubst %.cu,$(O)/%.cu.o,$(filter %.cu,$(cuda_src)))
cuda_link  = -shared -Wl$(comma)--version-script=src/device/library/exports.map $(if $(SAN),,-Wl$(comma)-z$(comma)defs) -Wl$(comma)--as-needed
cuda_libs  = $(foreach d,$(cuda_home) $(CUDNN_HOME) $(NCCL_HOME),$(call homel,$(d))) -lcudart -lcublasLt -lcudnn -lstdc++ -ldl -lm
$(O)/libtrainer_cuda.so: $(cuda_c_o) $(cuda_k_o) src/device/library/exports.map
	$(call say,LINK)$(CC) $(cuda_link) $(san) -o $@ $(cuda_c_o) $(cuda_k_o) $(LDFLAGS) $(cuda_libs)
$(O)/trainer-cuda-stub/libcuda.so.1: src/device/stub/libcuda.c
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) -std=gnu11 $(warn) -O2 -fPIC -fvisibility=hidden -shared -Wl,-soname,libcuda.so.1 -o $@ $<
$(O)/src/device/cuda/%.o: private CPPFLAGS += $(cuda_cflags:-I%=-isystem %) -fvisibility=hidden $(if $(have_nccl),-DTR_CUDA_NCCL)
$(O)/%.cu.o: %.cu $(O)/nvcc.stamp
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) $(nvcc_flags) -c -o $@ $< 2>$(@:.o=.ptxas); code=$$?; \
	grep -vE '^ptxas info|bytes stack frame|^$$' $(@:.o=.ptxas) >&2; exit $$code
$(O)/nvcc.stamp: FORCE ; $(call keep,$(NVCC) $(nvcc_flags))
# Registers, spills and shared memory of each kernel, for tests/golden/kernel_resources.
kernel-resources: $(cuda_k_o) ; @NVCC='$(NVCC)' tools/kernel-resources --write $(O)
# Preloaded by tests of faults; never with sanitizers, whose own libraries have to come first.
$(O)/libfail.so: tools/faults/fail.c tools/faults/nap.c
$(O)/libnap.so: tools/faults/nap.c
$(O)/libfail.so $(O)/libnap.so:
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) -std=gnu11 -D_GNU_SOURCE $(warn) -O2 -fPIC -shared -o $@ $^ -ldl
$(O)/%.o: %.c $(O)/flags.stamp
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(cflags) -c -o $@ $<
define isa_rules
$(O)/isa/$(1)/%.o: %.c $(O)/flags.stamp
	@mkdir -p $$(@D)
	$$(call say,CC)$$(CC) $$(cflags) $(stack_usage) -march=$(1) -fno-lto -DCPU_TABLE=$(isa_table) -c -o $$@ $$<
$(O)/isa/$(1).o: $(isa_o) $(O)/objects.stamp
	$$(call say,LINK)$$(CC) -r -nostdlib -o $$@ $(isa_o) && $$(OBJCOPY) --keep-global-symbol=$(isa_table) $$@
endef
$(foreach i,$(isas),$(eval $(call isa_rules,$(i))))
$(O)/src/device/cpu/cpu_isa.o: private CPPFLAGS += $(if $(isas),-D'CPU_TABLES=$(foreach i,$(isas),TABLE($(call isa_table,$(i))))')
# These are run before it is known what the processor has.
$(O)/src/device/cpu/cpu_isa.o $(O)/src/cmd/processor.o: private march :=
# NAME.su: the stack frame of each function, which tools/check-layers limits.
$(O)/src/%.o: private CPPFLAGS += $(stack_usage)
# The only object that knows libmicrohttpd, and those that know libjpeg and libpng.
$(O)/src/http/http.o: private CPPFLAGS += $(http_cflags)
$(O)/src/data/images/image_%.o $(O)/tests/cli/make_images.o: private CPPFLAGS += $(image_cflags)
# cmocka 2 warns of what cmocka 1 has no other name for.
$(O)/tests/%.o: private CPPFLAGS += -Wno-deprecated-declarations
# One object knows the version and how it was built; a new commit compiles it alone.
$(O)/src/cmd/version.o: $(O)/version.h
$(O)/src/cmd/version.o: private CPPFLAGS += -I$(O)
$(O)/version.h: FORCE ; $(call keep,$(version_h))
# The headings of the pages and the configurations, which `trainer help WORDS` searches.
$(O)/src/cmd/help_search.o: $(O)/docs_headings.inc
$(O)/src/cmd/help_search.o: private CPPFLAGS += -I$(O)
$(O)/docs_headings.inc: tools/docs-headings $(wildcard docs/*.md docs/labs/*.md configs/*.ini)
	@mkdir -p $(@D)
	@tools/docs-headings >$@
$(O)/flags.stamp: FORCE ; $(call keep,$(CC) $(cflags) $(stack_usage) | $(libs) $(LDFLAGS) $(LDLIBS))
$(O)/objects.stamp: FORCE ; $(call keep,$(lib_c) | $(cmd_c) | $(help_c))
define version_h
#define TR_VERSION       "$(version)"
#define TR_BUILD_CC      "$(CC)"
#define TR_BUILD_FLAGS   "$(subst ",,$(strip $(OPT) $(march) $(san) $(filter-out -ffile-prefix-map=%,$(CPPFLAGS) $(CFLAGS))))"
endef

reference: all
	@tools/make-reference $(O)/trainer docs
docs: ; @tools/make-site $(O)/site
docs-images: all $(replay_x) ; @MPIEXEC='$(MPIEXEC)' tools/make-images $(O) docs/img
lint: ; @tools/check-layers $$(test -f $(O)/libtrainer.a && echo $(O))
# What differs from the last commit, or f="FILES".
format:
	@command -v clang-format >/dev/null || { echo "clang-format is not installed"; exit 1; }
	@files='$(or $(f),$(shell git diff --name-only --diff-filter=d HEAD -- '*.c' '*.h' '*.cu'; git ls-files -o --exclude-standard '*.c' '*.h' '*.cu'))'; \
	[ -z "$$files" ] || { echo clang-format -i $$files; clang-format -i $$files; }
configure:
	$(file >config.mk)$(foreach s,$(settings),$(if $($(s)),$(if $(or $(filter command,$(origin $(s))),$(and $(filter file,$(origin $(s))),$(filter simple,$(flavor $(s))))),$(file >>config.mk,$(s) := $(subst $$,$$$$,$($(s)))))))
	@[ -s config.mk ] && cat config.mk || { rm -f config.mk; echo "config.mk: nothing set"; }
clean: ; rm -rf $(O) && { [ -e trainer ] || rm -f trainer; }
distclean: clean ; rm -f config.mk
print-%: ; @echo '$* = $($*)'

# -- install ------------------------------------------------------------------------------------------------------------
dest       := $(DESTDIR)$(PREFIX)
module_dir := $(dest)/share/modulefiles/trainer
bash_file  := $(dest)/share/bash-completion/completions/trainer
zsh_file   := $(dest)/share/zsh/site-functions/_trainer
fish_file  := $(dest)/share/fish/vendor_completions.d/trainer.fish
man_dir    := $(dest)/share/man
# Of the static library and its pkg-config file: LIBDIR=lib/x86_64-linux-gnu, for example.
lib_dir    := $(dest)/$(or $(LIBDIR),lib)
fill        = sed -e 's|@PREFIX@|$(abspath $(PREFIX))|g' -e 's|@VERSION@|$(version)|g' -e 's|@LIBDIR@|$(or $(LIBDIR),lib)|g' -e 's|@CFLAGS@|$(strip $(other_cflags))|g' -e 's|@LIBS@|$(strip $(libs) $(LDFLAGS) $(LDLIBS))|g'
ifeq ($(missing),)
install: all
	install -d $(dest)/bin $(lib_dir)/pkgconfig $(dest)/include/trainer $(dest)/share/trainer/configs $(module_dir)
	install -m 755 $(O)/trainer $(dest)/bin/trainer
	install -m 644 $(O)/libtrainer.a $(lib_dir)/libtrainer.a
	$(if $(cuda_lib),install -d $(dest)/lib/trainer-cuda-stub && install -m 755 $(cuda_lib) $(dest)/lib/libtrainer_cuda.so)
	$(if $(cuda_stub),install -m 755 $(cuda_stub) $(dest)/lib/trainer-cuda-stub/libcuda.so.1)
	install -m 644 $(wildcard include/trainer/*.h include/trainer/*.def) $(dest)/include/trainer
	$(if $(wildcard include/trainer.h),install -m 644 include/trainer.h $(dest)/include)
	$(if $(wildcard configs/*),install -m 644 $(wildcard configs/*) $(dest)/share/trainer/configs)
	$(if $(wildcard examples/*),install -d $(dest)/share/trainer/examples && install -m 644 $(wildcard examples/*) $(dest)/share/trainer/examples)
	$(if $(wildcard slurm/*),install -d $(dest)/share/trainer/slurm && cp -R $(wildcard slurm/*) $(dest)/share/trainer/slurm)
	install -d $(dir $(bash_file) $(zsh_file) $(fish_file))
	$(O)/trainer completion bash >$(bash_file) && $(O)/trainer completion zsh >$(zsh_file) && $(O)/trainer completion fish >$(fish_file)
	rm -rf $(O)/man && mkdir $(O)/man && tools/make-man $(O)/trainer $(O)/man
	install -d $(man_dir)/man1 $(man_dir)/man5 && install -m 644 $(O)/man/*.1 $(man_dir)/man1 && install -m 644 $(O)/man/*.5 $(man_dir)/man5
	$(fill) tools/trainer.pc.in >$(lib_dir)/pkgconfig/trainer.pc
	$(fill) tools/modulefile.in >$(module_dir)/$(version)
endif
uninstall:
	rm -f $(dest)/bin/trainer $(lib_dir)/libtrainer.a $(dest)/lib/libtrainer_cuda.so $(lib_dir)/pkgconfig/trainer.pc $(bash_file) $(zsh_file) $(fish_file) \
	    $(man_dir)/man1/trainer.1 $(man_dir)/man1/trainer-*.1 $(man_dir)/man5/trainer.ini.5
	rm -rf $(dest)/include/trainer $(dest)/include/trainer.h $(dest)/share/trainer $(dest)/lib/trainer-cuda-stub $(module_dir)
	@rmdir $(man_dir)/man1 $(man_dir)/man5 $(man_dir) $(dest)/share/modulefiles $(foreach f,$(bash_file) $(zsh_file) $(fish_file),$(dir $f) $(dir $(patsubst %/,%,$(dir $f)))) $(lib_dir)/pkgconfig 2>/dev/null || true
# The usual folders of a prefix that holds nothing else; /usr/local has more than these, also where it is empty.
	@[ "$$(cd $(dest) 2>/dev/null && echo $$(find . -maxdepth 2 | sort))" != ". ./bin ./include ./lib ./share" ] || rmdir $(addprefix $(dest)/,bin include lib share) $(dest)

# A tarball of the last commit, which builds without git. The same commit gives the same bytes.
dist:
	git archive --format=tar --prefix=trainer-$(number)/ --output=trainer-$(number).tar HEAD
	gzip -9nf trainer-$(number).tar
	@ls -l trainer-$(number).tar.gz

# -- info ---------------------------------------------------------------------------------------------------------------
# $(call macro,HEADER,FLAGS,EXPRESSION): what the header's macros in EXPRESSION stand for.
macro = $(shell printf '$(hash)include <%s>\n@@ %s\n' $(1) '$(3)' | $(CC) $(CPPFLAGS) $(CFLAGS) $(2) -E -P -x c - 2>/dev/null | sed -n 's/^@@ *//p' | tr -d '" ')
row   = printf '  %-10s %-20s %s\n' '$(1)' '$(if $(2),$(or $(strip $(3)),yes),no)' '$(strip $(4))';
mpi_v = $(call macro,mpi.h,$(mpi_cflags),OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION)
cuda_v = $(call macro,cuda_runtime_api.h,$(cuda_cflags),CUDART_VERSION)
help:
	@sed -n '1,/^[^#]/s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))
info:
	@echo 'trainer $(version)'
	@$(call row,compiler,1,$(shell $(CC) -dumpfullversion 2>/dev/null || $(CC) -dumpversion),$(CC) $(OPT) $(march)$(if $(isas), with kernels for $(isas)) $(san) $(CPPFLAGS) $(CFLAGS))
	@$(call row,MPI,$(have_mpi),$(if $(filter OMPI%,$(mpi_v)),MPI $(call macro,mpi.h,$(mpi_cflags),MPI_VERSION.MPI_SUBVERSION),Open MPI $(mpi_v)),$(if $(have_mpi),$(shell command -v $(MPICC)) $(mpi_libs),no usable '"$(MPICC)"'; set MPICC))
	@$(call row,HDF5,$(have_hdf5),$(call macro,hdf5.h,$(hdf5_cflags),H5_VERS_MAJOR.H5_VERS_MINOR.H5_VERS_RELEASE),$(if $(have_hdf5),$(hdf5_libs),set HDF5_HOME))
	@$(call row,oneDNN,$(have_dnnl),$(call macro,oneapi/dnnl/dnnl_version.h,$(dnnl_cflags),DNNL_VERSION_MAJOR.DNNL_VERSION_MINOR.DNNL_VERSION_PATCH),$(if $(have_dnnl),$(dnnl_libs),set DNNL_HOME))
	@$(call row,jansson,$(have_jansson),$(call macro,jansson.h,$(other_cflags),JANSSON_VERSION),$(or $(call pkg,--libs,jansson),-ljansson))
	@$(call row,xxHash,$(have_xxhash),$(call macro,xxhash.h,$(other_cflags),XXH_VERSION_MAJOR.XXH_VERSION_MINOR.XXH_VERSION_RELEASE),$(or $(call pkg,--libs,libxxhash),-lxxhash))
	@$(call row,zlib,$(have_zlib),$(call macro,zlib.h,$(other_cflags),ZLIB_VERSION),$(or $(call pkg,--libs,zlib),-lz))
	@$(call row,libjpeg,$(have_jpeg),$(call pkg,--modversion,libjpeg),$(if $(have_jpeg),JPEG files in trainer import images,not found: no JPEG files in trainer import images))
	@$(call row,libmicrohttpd,$(have_mhd),$(call pkg,--modversion,libmicrohttpd),$(if $(have_mhd),monitor.port,not found: no monitor.port))
	@$(call row,libpng,$(have_png),$(call pkg,--modversion,libpng),$(if $(have_png),PNG files in trainer import images,not found: no PNG files in trainer import images))
	@$(call row,cmocka,$(have_cmocka),$(call pkg,--modversion,cmocka),$(if $(have_cmocka),$(cmocka_libs) (tests),only the tests want it))
	@$(call row,CUDA,$(have_cuda),$(if $(cuda_v),$(shell echo $$(($(cuda_v) / 1000)).$$(($(cuda_v) % 1000 / 10)))),$(if $(have_cuda),$(cuda_home) for sm_$(cuda_arch),$(if $(filter 0 no,$(CUDA)),left out by CUDA=$(CUDA),no nvcc in PATH or CUDA_HOME with cublasLt and cuDNN: a build for CPUs)))
	@$(if $(have_cuda),$(call row,cuDNN,$(have_cudnn),$(call macro,cudnn.h,$(cuda_cflags),CUDNN_MAJOR.CUDNN_MINOR.CUDNN_PATCHLEVEL),$(or $(CUDNN_HOME),$(cuda_home))))
	@$(if $(have_cuda),$(call row,NCCL,$(have_nccl),$(call macro,nccl.h,$(cuda_cflags),NCCL_MAJOR.NCCL_MINOR.NCCL_PATCH),$(or $(NCCL_HOME),$(cuda_home))))
	@$(call row,build,1,$(O)/,PREFIX $(PREFIX)$(if $(wildcard config.mk),; settings from config.mk))
	@$(if $(missing),echo '  missing:   $(missing); tools/install-deps installs them on Debian and Ubuntu' && exit 1,true)

-include tests/hostcuda/hostcuda.mk
-include $(cuda_c_o:.o=.d) $(cuda_k_o:.o=.d)
-include $(lib_o:.o=.d) $(foreach i,$(isas),$(patsubst %.o,%.d,$(call isa_o,$(i)))) $(cmd_o:.o=.d) $(unit_c:%.c=$(O)/%.d) $(help_o:.o=.d) $(library_o:.o=.d) $(O)/tests/library/second.d $(bench_x:=.d) $(replay_x:=.d)
