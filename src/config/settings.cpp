#include "config/settings.hpp"

namespace idem::config {

namespace {

// A base backup copies every file of the data directory. The keys must not travel with the data
// that they seal.
bool check_path(char** path, void**, GucSource) {
    if (*path == nullptr || **path == '\0') return true;
    char* canonical = pstrdup(*path);
    canonicalize_path(canonical);
    bool good = is_absolute_path(canonical) && !path_is_prefix_of_path(DataDir, canonical);
    pfree(canonical);
    if (good) return true;
    GUC_check_errdetail("It must be an absolute path outside the data directory.");
    return false;
}

// Until then the variable's value is its default.
void define(const Setting& s) {
    if (s.flag != nullptr)
        DefineCustomBoolVariable(s.name, s.short_description, s.long_description, s.flag, *s.flag,
                                 s.context, s.unit, nullptr, nullptr, nullptr);
    else if (s.words != nullptr)
        DefineCustomEnumVariable(s.name, s.short_description, s.long_description, s.number,
                                 *s.number, s.words, s.context, s.unit, nullptr, nullptr, nullptr);
    else if (s.path != nullptr)
        DefineCustomStringVariable(s.name, s.short_description, s.long_description, s.path, "",
                                   s.context, s.unit, check_path, nullptr, nullptr);
    else
        DefineCustomIntVariable(s.name, s.short_description, s.long_description, s.number,
                                *s.number, s.least, s.most, s.context, s.unit, nullptr, nullptr,
                                nullptr);
}

// Spans of a policy are microseconds.
constexpr std::int64_t scale_of(int unit) {
    return unit == GUC_UNIT_S ? core::kSecond : unit == GUC_UNIT_MS ? core::kMillisecond : 1;
}

}  // namespace

void define_settings() {
    for (const Setting& setting : kSettings) define(setting);
    MarkGUCPrefixReserved("idempotency");
}

StoreChoice store_choice() {
    static bool is_chosen = false;
    static int chosen;
    if (!is_chosen) chosen = store_setting;
    is_chosen = true;
    return static_cast<StoreChoice>(chosen);
}

core::Policy default_policy() {
    core::Policy policy;
    for (const Setting& s : kSettings)
        if (s.option != kNoOption)
            core::kPolicyColumns[s.option].put(&policy, *s.number * scale_of(s.unit));
    return policy;
}

const Setting* setting_for(int option) {
    for (const Setting& s : kSettings)
        if (s.option == option) return &s;
    return nullptr;
}

}  // namespace idem::config
