#include "pg/numeric.hpp"

namespace idem::pg {

namespace {

// What is sent: the number of groups, the weight of the first, sign, scale, and the groups.
constexpr int kWeight = 1;
constexpr int kSign = 2;
constexpr int kFirstGroup = 4;
constexpr std::uint16_t kPositive = 0x0000;
constexpr std::uint16_t kNegative = 0x4000;

std::uint16_t sent_number(const bytea* sent, std::size_t index) {
    std::uint16_t number;
    memcpy(&number, VARDATA_ANY(sent) + index * sizeof number, sizeof number);
    return pg_ntoh16(number);
}

}  // namespace

SentNumeric send_numeric(Numeric number) {
    SentNumeric result{};
    result.sent = DatumGetByteaPP(DirectFunctionCall1(numeric_send, NumericGetDatum(number)));
    result.groups = sent_number(result.sent, 0);
    std::uint16_t sign = sent_number(result.sent, kSign);
    result.finite = sign == kPositive || sign == kNegative;
    result.negative = sign == kNegative;
    auto weight = static_cast<std::int16_t>(sent_number(result.sent, kWeight));
    result.exponent = static_cast<std::int64_t>(kDigitsInGroup) * (weight + 1) - 1;
    return result;
}

void write_digits(const SentNumeric& number, char* out) {
    for (std::size_t i = 0; i < number.groups; i++) {
        std::uint16_t group = sent_number(number.sent, kFirstGroup + i);
        for (std::size_t digit = kDigitsInGroup; digit-- > 0; group /= 10)
            out[i * kDigitsInGroup + digit] = static_cast<char>('0' + group % 10);
    }
}

}  // namespace idem::pg
