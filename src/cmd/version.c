/* The only object file that depends on the version and the build: a new commit recompiles nothing
 * else. */
#include "cmd.h"
#include "version.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

const char cmd_version[] = TR_VERSION;
const char cmd_build_cc[] = TR_BUILD_CC ", " COMPILER;
const char cmd_build_flags[] = TR_BUILD_FLAGS;
