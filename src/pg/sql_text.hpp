// The text of a statement, put together by the compiler from a table of columns.
#pragma once

#include <cstddef>

namespace idem::pg {

struct SqlText {
    char text[2048];
    std::size_t length;

    constexpr void add(const char* piece) {
        while (*piece != '\0') text[length++] = *piece++;
    }
    // A parameter: "$27".
    constexpr void parameter(int number) {
        add("$");
        if (number >= 10) text[length++] = static_cast<char>('0' + number / 10);
        text[length++] = static_cast<char>('0' + number % 10);
    }
    // "$3, $4, $5"
    constexpr void parameters(int first, int last) {
        for (int i = first; i <= last; i++) {
            if (i > first) add(", ");
            parameter(i);
        }
    }
};

}  // namespace idem::pg
