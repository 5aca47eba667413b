# Sourced by slow shell tests: which cases they run. `make test` runs the first case of a kind, test-all (TEST_ALL=1) runs all. Not a test itself.

all() { [ -n "${TEST_ALL-}" ]; }
cases() { if all; then echo "$@"; else echo "$1"; fi; }
