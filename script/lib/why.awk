# What a TAP file's own log tells of why it failed, 20 lines at most: the diagnostics of each test
# that failed, which say what was found, and the words with which it died. Not its notes, such as
# what each session was asked.

BEGIN { left = 20 }

# Where something is said anew, the log has the time.
{ anew = sub(/^\[[0-9:.]+\]\([0-9.]+s\) /, "") }

/^ *#   Failed test /             { telling = "of a test" }
/^ *# poll_query_until timed out/ { telling = "of a query"; anew = 0 }

telling == "of a test" && /^ *#   /        { say(); next }
telling == "of a query" && /^ *# / && !anew { say(); next }
{ telling = "" }

/^[^#]* at [^ ]+\.p[lm] line [0-9]+\.$/ || /^Bail out!/ { say() }

function say() { if (left-- > 0) print }
