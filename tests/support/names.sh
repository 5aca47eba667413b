# Sourced by shell tests: what they may ask of a message. Not a test itself.

# messages FILE NAMES...: the messages of FILE that have all of the names, in any order; fails where there is none. Names are keys, values, paths
# and numbers, each a basic regular expression that begins and ends where a word does; one argument may list several, with " & " between them. The
# words around them are free to change. A message is a line with the indented lines below it.
messages() {
    local found name
    found=$(sed -e ':a' -e '$!N' -e 's/\n[ \t][ \t]*/ /' -e ta -e 'P;D' -- "$1")
    shift
    while IFS= read -r name; do found=$(grep -awe "$name" <<<"$found") || return 1; done < <(printf '%s\n' "${@// & /$'\n'}")
    printf '%s\n' "$found"
}
names() { messages "$@" >/dev/null; }
# once FILE NAME...: exactly one message has them
once() { [ "$(messages "$@" | wc -l)" = 1 ]; }
