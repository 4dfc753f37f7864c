#!/bin/sh
# test_format.sh CLANG_FORMAT: all C files are as clang-format leaves them. Versions differ in what they do: 14 decides.
top=$(cd "$(dirname "$0")/../.." && pwd)
case $("$1" --version 2>/dev/null) in
*"version 14."*) ;;
*)
    echo "skipped: there is no clang-format 14"
    exit 77
    ;;
esac
cd "$top" && find src jobs data_tools tests -name '*.[ch]' -print0 | xargs -0 "$1" --dry-run --Werror --ferror-limit=1
