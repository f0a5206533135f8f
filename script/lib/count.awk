# Counts the tests in a group's output and prints "PASSED FAILED SKIPPED", then the lines of the failed
# ones, with the reasons given. Our checks that lack a tool are skipped: "# SKIP". It recognizes four kinds of lines: TAP (our checks, and pg_regress
# from 16 on), pg_regress up to 15, ctest, and prove's summary.

function fail() { failed++; note() }
function note() { lines = lines "\n" $0 }

/^ok [0-9]+ .* # SKIP /     { skipped++; next }
/^ok [0-9]+/     { passed++ }
/^not ok [0-9]+/ { fail() }

# The reasons: after the test, 60 lines at most of its own or of what show_tail shows; and those that groups.sh
# finds in the logs of TAP files.
/^(not )?ok [0-9]+/ { reasons = /^not/ ? 60 : 0 }
/^(# |    \| )/     { if (reasons-- > 0) note() }
/^why: /            { note() }

/^(test|    ) .* \.\.\. ok /         { passed++ }
/^(test|    ) .* \.\.\. (FAILED|failed)/ { fail() }

/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
    told = 0
    if (/ Passed +[0-9.]+ sec/) passed++
    else if (!/\*\*\*Skipped/) { fail(); told = 20; next }
}
# The test's own output, without GoogleTest's frame.
told > 0 && !/^(\[| +Start |Note: |Running main|$)/ { told--; note() }

# prove names each failed file, with the number of its failed tests: none in a file that died.
/\(Wstat: [0-9]+.* Tests: [0-9]+ Failed: [0-9]+\)$/ {
    note()
    sub(/\)$/, "")
    trouble = $NF
    tap_failed += trouble
}
/^  (Non-zero (exit|wait) status|Parse errors):/ && trouble == 0 { died++; trouble = 1 }
/^  Failed tests?:/ { note() }
/^Files=[0-9]+, Tests=[0-9]+,/ {
    split($2, tests, /[=,]/)
    passed += tests[2] - tap_failed
    failed += tap_failed + died
}

END { print passed + 0, failed + 0, skipped + 0 lines }
