# The reasons for a failure from a TAP file's own log, 20 lines at most: the diagnostics of each
# failed test, which show the actual values, and the message with which it died. Not its notes, such
# as each session's queries.

BEGIN { left = 20 }

# Each new message has the time in the log.
{ anew = sub(/^\[[0-9:.]+\]\([0-9.]+s\) /, "") }

/^ *#   Failed test /             { telling = "of a test" }
/^ *# poll_query_until timed out/ { telling = "of a query"; anew = 0 }

telling == "of a test" && /^ *#   /        { say(); next }
telling == "of a query" && /^ *# / && !anew { say(); next }
{ telling = "" }

/^[^#]* at [^ ]+\.p[lm] line [0-9]+\.$/ || /^Bail out!/ { say() }

function say() { if (left-- > 0) print }
