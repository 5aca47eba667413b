# shellcheck shell=bash
# common.sh: small functions of the scripts of this folder. It is sourced, not run.

# usage SCRIPT: the comment at its head
usage() { sed -n '/^# [a-z0-9_]*\.sh:/,/^[^#]/s/^# \{0,1\}//p' "$1"; }

# value_of CONFIG SECTION KEY: as CONFIG has it; empty if it does not
value_of() {
    awk -v section="[$2]" -v key="$3" '
        /^[ \t]*\[/ { inside = index($0, section) > 0 }
        inside && $0 ~ "^[ \t]*" key "[ \t]*=" {
            sub(/^[^=]*=[ \t]*/, ""); sub(/[ \t]+[#;].*$/, ""); sub(/[ \t\r]+$/, ""); gsub(/"/, ""); print; exit }' "$1"
}
