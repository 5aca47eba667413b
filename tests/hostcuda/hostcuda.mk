# The fakes of the CUDA libraries, below $(O)/hostcuda: only where nvcc's headers are. `make hostcuda` builds them.
# Included by the top Makefile; nothing here is a part of the program.
hostcuda     := $(O)/hostcuda
hostcuda_dir := tests/hostcuda
hostcuda_inc  = -I$(hostcuda_dir)/include -I$(hostcuda_dir)/numeric $(cuda_cflags)
hostcuda_c    = -std=gnu11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -ffp-contract=off -O3 -g $(march) $(warn) -Wno-strict-prototypes \
                -MMD -MP $(hostcuda_inc)
# Kernels on the host: each static variable of a function is shared memory, collected in one section of the module.
hostcuda_cxx  = -x c++ -std=gnu++17 -fPIC -fvisibility=hidden -fdata-sections -ffp-contract=off -O2 -g $(march) -Wall -Wextra \
                -Wno-unused-parameter -Wno-unknown-pragmas -fno-strict-aliasing $(if $(filter 1,$(WERROR)),-Werror) -DTR_HOSTCUDA -Isrc -Iinclude -MMD -MP $(hostcuda_inc)
hostcuda_rename = objcopy $$(objdump -h $(1) | awk '$$2 ~ /^\.bss\._ZZ/ { print "--rename-section " $$2 "=hostcuda_shared" }') $(1)

# $(call hostcuda_lib,FOLDER,SONAME,LINK NAME): one fake library from all sources of a folder.
define hostcuda_lib
hostcuda_$(1)_o := $$(patsubst %.c,$(hostcuda)/%.o,$$(sort $$(wildcard $(hostcuda_dir)/$(1)/*.c)))
hostcuda_$(1)_n := $(if $(filter cublasLt cudnn nccl,$(1)),$(hostcuda)/$(hostcuda_dir)/numeric/numeric.o)
hostcuda_libs   += $$(if $$(hostcuda_$(1)_o),$(hostcuda)/$(2))
$(hostcuda)/$(2): $$(hostcuda_$(1)_o) $$(hostcuda_$(1)_n) $(hostcuda_dir)/$(1)/exports.map $(if $(filter-out cudart,$(1)),$(hostcuda)/libcudart.so.13)
	$$(call say,LINK)$$(CC) -shared -Wl,-soname,$(2) -Wl,-z,nodelete -Wl,-z,defs -Wl,--version-script,$(hostcuda_dir)/$(1)/exports.map \
	    -o $$@ $$(filter %.o,$$^) $$(filter %.so.13,$$^) -lm -lpthread
	@ln -sf $(2) $(hostcuda)/$(3)
hostcuda_d      += $$(hostcuda_$(1)_o:.o=.d)
endef
# The fakes have the names and signatures of CUDA 13.
hostcuda_13   = $(shell printf '$(hash)include <cuda_runtime_api.h>\n$(hash)if CUDART_VERSION < 13000\n$(hash)error\n$(hash)endif\n' | \
                $(CC) $(cuda_cflags) -E -x c - >/dev/null 2>&1 && echo 1)
hostcuda_have := $(if $(filter 0 no,$(CUDA)),,$(if $(NVCC),$(if $(hostcuda_13),$(call have,cublasLt.h cudnn.h nccl.h,$(cuda_cflags)))))
ifneq ($(hostcuda_have),)
$(eval $(call hostcuda_lib,cudart,libcudart.so.13,libcudart.so))
$(eval $(call hostcuda_lib,cublasLt,libcublasLt.so.13,libcublasLt.so))
$(eval $(call hostcuda_lib,cudnn,libcudnn.so.9,libcudnn.so))
$(eval $(call hostcuda_lib,nccl,libnccl.so.2,libnccl.so))
$(eval $(call hostcuda_lib,nvml,libnvidia-ml.so.1,libnvidia-ml.so))

hostcuda_nvml_old := $(hostcuda)/nvml_old/libnvidia-ml.so.1
$(hostcuda_nvml_old): $(hostcuda_nvml_o) $(hostcuda_dir)/nvml/exports_old.map $(hostcuda)/libcudart.so.13
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) -shared -Wl,-soname,$(@F) -Wl,--version-script,$(hostcuda_dir)/nvml/exports_old.map -o $@ $(hostcuda_nvml_o) \
	    $(hostcuda)/libcudart.so.13 -lm -lpthread

hostcuda_test_x := $(patsubst %.c,$(hostcuda)/%,$(sort $(wildcard $(hostcuda_dir)/test_*.c)))
hostcuda_test_k := $(patsubst %.cu,$(hostcuda)/%.cu.o,$(sort $(wildcard $(hostcuda_dir)/*.cu)))
hostcuda_d      += $(hostcuda_test_x:=.d) $(hostcuda_test_k:.o=.d)

# The program's CUDA library as it runs on the fakes: the objects of its .c files as they are, and its kernels on the host.
ifneq ($(cuda_src),)
hostcuda_module   := $(hostcuda)/libtrainer_cuda.so
hostcuda_module_o := $(cuda_c_o) $(patsubst %.cu,$(hostcuda)/%.cu.o,$(filter %.cu,$(cuda_src)))
hostcuda_d        += $(patsubst %.cu,$(hostcuda)/%.cu.d,$(filter %.cu,$(cuda_src)))
$(hostcuda_module): $(hostcuda_module_o) $(hostcuda_libs)
	$(call say,LINK)$(CC) $(cuda_link) $(san) -o $@ $(hostcuda_module_o) -L$(hostcuda) -l:libcudart.so.13 -l:libcublasLt.so.13 -l:libcudnn.so.9 \
	    -lstdc++ -lm -ldl -lpthread
hostcuda_stub := $(hostcuda)/trainer-cuda-stub/libcuda.so.1
$(hostcuda_stub): $(cuda_stub)
	@mkdir -p $(@D)
	@ln -sf ../../trainer-cuda-stub/libcuda.so.1 $@
endif

$(hostcuda)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(hostcuda_c) -c -o $@ $<
# Products are most of the time: they may fuse multiplications and additions.
$(hostcuda)/$(hostcuda_dir)/numeric/numeric.o: private hostcuda_c += -ffp-contract=fast -Wno-psabi
$(hostcuda)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) $(hostcuda_cxx) -c -o $@ $< && $(call hostcuda_rename,$@)
$(hostcuda_test_x): %: %.o $(hostcuda_test_k) $(hostcuda)/$(hostcuda_dir)/numeric/numeric.o $(hostcuda_libs)
	$(call say,LINK)$(CC) -o $@ $(filter %.o,$^) -L$(hostcuda) $(patsubst $(hostcuda)/%,-l:%,$(filter-out %ml.so.1,$(hostcuda_libs))) \
	    $(cmocka_libs) -lstdc++ -lm -lpthread

# A program that was linked against the real libraries runs on the fakes.
hostcuda_real := $(if $(wildcard $(cuda_home)/lib64/libcublasLt.so),$(hostcuda)/real_link)
$(hostcuda)/real_link: $(hostcuda)/$(hostcuda_dir)/test_cublaslt.o $(hostcuda)/$(hostcuda_dir)/numeric/numeric.o
	$(call say,LINK)$(CC) -o $@ $^ -L$(cuda_home)/lib64 -lcudart -lcublasLt $(cmocka_libs) -lm

# What NVTX loads in place of a profiler.
hostcuda_nvtx := $(if $(wildcard $(cuda_home)/include/nvtx3/nvToolsExt.h),$(hostcuda)/libnvtx_log.so)
$(hostcuda)/libnvtx_log.so: $(hostcuda_dir)/nvtx_log.c
	$(call say,LINK)$(CC) $(hostcuda_c) -w -shared -o $@ $< -ldl

.PHONY: hostcuda
hostcuda: $(hostcuda_libs) $(hostcuda_nvml_old) $(hostcuda_test_x) $(hostcuda_real) $(hostcuda_nvtx) $(hostcuda_module) $(hostcuda_stub)
test-programs: $(if $(k),$(if $(findstring $(k),$(hostcuda_dir)/fakes.t)$(findstring hostcuda,$(k)),hostcuda),hostcuda)
-include $(hostcuda_d)
else
.PHONY: hostcuda
hostcuda: ; @echo "the fakes need nvcc and the headers of CUDA 13, cuDNN and NCCL; see make info" && exit 1
endif
