#!/bin/sh
# Tells whether the worker of this machine has a job in hand: busy.sh DIRECTORY of its log
last=$(grep -v approved "$1/$FOREWARN_MACHINE" | tail -n 1)
case $last in
taken*)
    echo "job ${last#taken } is in hand"
    exit 1
    ;;
esac
