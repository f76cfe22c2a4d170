#!/bin/sh
# The worker with curl and sed: one request at a time, and no JSON parser.
# Usage: worker.sh [SECONDS between two polls] [DIRECTORY for its log]
every=${1:-1}
[ -z "$2" ] || exec >>"$2/$FOREWARN_MACHINE"
address=${FOREWARN_METADATA:-http://169.254.169.254}/metadata
events="$address/scheduledevents?api-version=2020-07-01"
job=1 working='' approved='' pauses=1 # to sleep for before the next poll: more and more while there are no answers

ask() {
    curl --silent --fail --noproxy '*' --max-time 2 --header Metadata:true "$@"
}

resume() {
    [ -n "$working" ] || { echo "taken $job"; working=yes; }
}

drain() {
    [ -z "$working" ] || { echo "returned $job"; working=''; job=$((job + 1)); }
}

# One line for each event that disturbs this machine: its id and status.
disturbing() {
    printf '%s' "$document" | sed 's/{"EventId"/\n&/g' | grep -F "\"$name\"" |
        grep -vF '"EventType":"Freeze"' |
        sed -n 's/.*"EventId":"\([^"]*\)".*"EventStatus":"\([^"]*\)".*/\1 \2/p'
}

trap 'drain; exit 0' TERM INT
until name=$(ask "$address/instance/compute/name?api-version=2021-02-01&format=text"); do
    sleep "$every"
done
while :; do
    if document=$(ask "$events"); then
        pauses=1
        case $document in
        *'"Events":['*']}')
            mine=$(disturbing)
            if [ -z "$mine" ]; then resume; else drain; fi
            while read -r id status; do
                case $status$approved in
                *"$id"*) ;;
                Scheduled*)
                    echo "approved $id"
                    ask --data "{\"StartRequests\":[{\"EventId\":\"$id\"}]}" "$events" &&
                        approved="$approved $id"
                    ;;
                esac
            done <<END
$mine
END
            ;;
        esac
    elif [ $pauses -lt 8 ]; then
        pauses=$((pauses * 2))
    fi
    sleep "$(awk "BEGIN { print $every * $pauses }")" & wait $!
done
