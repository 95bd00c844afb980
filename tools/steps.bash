# Sourced by .ci/run and tools/verify: commands as steps, one after the other, and how each ended.
#
# The caller sets `logs`, a folder: what step NAME prints is in $logs/NAME.log, too.
export LC_ALL=C.UTF-8
mkdir -p "$logs"
trap 'kill $(jobs -p) 2>/dev/null' EXIT
rows=() passed=0 failed=() skipped=0

# step NAME LIMIT COMMAND...: runs it for at most LIMIT seconds; `verdict` is passed, failed or stopped.
step() {
    local name=$1 limit=$2 begin=$SECONDS pid status=0
    shift 2
    printf '\n== %s: %s\n' "$name" "$*"
    # Shown from the file: a process that a test left behind could hold a pipe open.
    : >"$logs/$name.log"
    timeout --kill-after=10 "$limit" "$@" </dev/null >>"$logs/$name.log" 2>&1 &
    pid=$!
    tail --pid=$pid -s 0.2 -n +1 -f "$logs/$name.log" &
    wait $pid || status=$?
    wait
    seconds=$((SECONDS - begin))
    case $status in
        0) verdict=passed ;;
        124 | 137) verdict=stopped ;;
        *) verdict=failed ;;
    esac
}

# record NAME VERDICT SECONDS [WORDS]: how a step ended; all but `passed` and `failed` count as skipped.
record() {
    rows+=("$1 $2 $3")
    case $2 in
        passed) passed=$((passed + 1)) ;;
        failed) failed+=("$1") ;;
        *) skipped=$((skipped + 1)) ;;
    esac
    printf '== %s: %s%s, %d s (%d s in all)\n' "$1" "$2" "${4:+, $4}" "$3" $SECONDS
}

# must NAME LIMIT COMMAND...: a step that fails where it is stopped.
must() {
    step "$@"
    case $verdict in
        stopped) record "$1" failed $seconds "stopped after $2 s" ;;
        *) record "$1" $verdict $seconds ;;
    esac
}

# The summary, last of all: a line that runners of CI understand.
summary() {
    echo
    printf '%s\n' "${rows[@]}" | awk '{ printf "%6d s  %-11s %s\n", $3, $2, $1 }'
    [ ${#failed[@]} -eq 0 ] || echo "failed: ${failed[*]}"
    echo
    echo "$passed passed, ${#failed[@]} failed, $skipped skipped"
}

# The processor and its cores, in words.
machine() { printf '%s, %d cores' "$(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"; }
