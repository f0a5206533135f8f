// Walks a request as the server keeps it, to write its canonical form. One that may be too large is
// walked twice: first to count, so that memory is not spent in vain, then to write. Each loop can
// be cancelled.

#include "request/fingerprint.hpp"

#include <algorithm>

#include "core/fingerprint.hpp"

#include "pg/datum.hpp"
#include "pg/jsonb.hpp"

namespace idem::request {

namespace {

[[noreturn]] void raise_field(const char* purpose, std::size_t index) {
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid field to %s", purpose),
             errdetail("Entry %zu cannot be read.", index + 1),
             errhint("Write a plain field name, a path such as $.a.b or $.a[*].b, or, in double "
                     "quotes, a name that has \".\", \"[\", \"]\", \"*\" or outer blanks.")));
    pg_unreachable();
}

[[noreturn]] void raise_too_deep() {
    ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("request is nested too deeply"),
                    errdetail("A fingerprint reads at most %d levels.", core::kMaxJsonDepth)));
    pg_unreachable();
}

// The server itself never lets such a number into a jsonb.
[[noreturn]] void raise_no_canonical_form() {
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("request has no canonical form"),
             errdetail("One of its numbers is not finite.")));
    pg_unreachable();
}

[[noreturn]] void raise_digest() {
    ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
                    errmsg("could not compute the SHA-256 digest of the request"),
                    errdetail("OpenSSL refused the computation.")));
    pg_unreachable();
}

[[noreturn]] void raise_request_too_large(std::size_t bytes) {
    ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                    errmsg("request is too large for a fingerprint"),
                    errdetail("It has %zu bytes; %zu are allowed.", bytes, core::kMaxRequestBytes),
                    errhint("Pass a digest of your own as fingerprint.")));
    pg_unreachable();
}

// A byte of a jsonb becomes at most this many: a control character does.
constexpr std::size_t kLargestGrowth = core::kLongestEscape;

// Counts `length`, of the final text, and `written`, of all that was ever written, also if taken
// back: room for `written` is enough.
struct Walk {
    core::Excludes excludes;
    core::Excludes fields;  // what counts, where not everything does
    bool all_count;
    char* out;  // where the next byte goes; nullptr: it is only counted
    std::size_t length;
    std::size_t written;
    int depth;
    char* scratch;  // for a number's digits and its spelling
    std::size_t scratch_size;
};

struct Member {
    std::string_view name;  // in UTF-8
    const char* stored;     // the name as the request has it
    JsonbValue value;
};

bool put_container(Walk& walk, JsonbContainer* container, const Place& place);

void free_converted(std::string_view utf8, const char* stored) {
    if (utf8.data() != stored) pfree(const_cast<char*>(utf8.data()));
}

void put(Walk& walk, std::string_view bytes) {
    if (walk.out == nullptr) {
        walk.length += bytes.size();
        walk.written += bytes.size();
    } else {
        memcpy(walk.out, bytes.data(), bytes.size());
        walk.out += bytes.size();
    }
}

// The text written so far.
struct Mark {
    char* out;
    std::size_t length;
};

void take_back(Walk& walk, const Mark& mark) {
    walk.out = mark.out;
    walk.length = mark.length;
}

void put_quoted(Walk& walk, std::string_view utf8) {
    put(walk, "\"");
    std::size_t plain;
    while ((plain = core::plain_length(utf8)) < utf8.size()) {
        CHECK_FOR_INTERRUPTS();
        char escape[core::kLongestEscape];
        std::size_t length = core::spell_escape(utf8[plain], escape);
        put(walk, utf8.substr(0, plain));
        put(walk, {escape, length});
        utf8.remove_prefix(plain + 1);
    }
    put(walk, utf8);
    put(walk, "\"");
}

void put_string(Walk& walk, const JsonbValue& value) {
    std::string_view stored = pg::string_of(value);
    std::string_view utf8 = pg::as_utf8(stored);
    put_quoted(walk, utf8);
    free_converted(utf8, stored.data());
}

char* scratch_of(Walk& walk, std::size_t size) {
    if (walk.scratch_size < size) {
        if (walk.scratch != nullptr) pfree(walk.scratch);
        walk.scratch = static_cast<char*>(palloc(size));
        walk.scratch_size = size;
    }
    return walk.scratch;
}

void put_number(Walk& walk, Numeric number) {
    pg::SentNumeric sent = pg::send_numeric(number);
    if (!sent.finite) raise_no_canonical_form();
    std::size_t count = sent.groups * pg::kDigitsInGroup;
    char* digits = scratch_of(walk, 2 * count + core::kNumberOverhead);
    char* spelling = digits + count;
    pg::write_digits(sent, digits);
    pfree(sent.sent);
    core::Decimal decimal{sent.negative, {digits, count}, sent.exponent};
    put(walk, {spelling, core::spell_number(decimal, spelling)});
}

void put_scalar(Walk& walk, const JsonbValue& value) {
    switch (value.type) {
        case jbvBool:
            return put(walk, value.val.boolean ? "true" : "false");
        case jbvString:
            return put_string(walk, value);
        case jbvNumeric:
            return put_number(walk, value.val.numeric);
        default:
            return put(walk, "null");
    }
}

// Writes the part of the value that counts. False if none does; then nothing was written.
bool put_value(Walk& walk, const JsonbValue& value, const Place& place) {
    if (value.type == jbvBinary) return put_container(walk, value.val.binary.data, place);
    if (place.counts) put_scalar(walk, value);
    return place.counts;
}

// Whether there are any.
bool put_elements(Walk& walk, JsonbContainer* array, const Place& each) {
    bool any = false;
    JsonbValue element;
    JsonbIterator* it = JsonbIteratorInit(array);
    (void)JsonbIteratorNext(&it, &element, true);
    while (JsonbIteratorNext(&it, &element, true) == WJB_ELEM) {
        CHECK_FOR_INTERRUPTS();
        Mark before{walk.out, walk.length};
        if (any) put(walk, ",");
        if (put_value(walk, element, each))
            any = true;
        else
            take_back(walk, before);
    }
    return any;
}

bool put_array(Walk& walk, JsonbContainer* array, const Place& place) {
    Place each = element_place(place);
    put(walk, "[");
    bool any = !core::paths_exclude(each.excluded) && put_elements(walk, array, each);
    put(walk, "]");
    return any;
}

// The next member that is not excluded; false at the end.
bool next_member(const Walk& walk, JsonbIterator** it, const Place& object, Member* member) {
    JsonbValue name;
    while (JsonbIteratorNext(it, &name, true) == WJB_KEY) {
        CHECK_FOR_INTERRUPTS();
        (void)JsonbIteratorNext(it, &member->value, true);
        member->stored = name.val.string.val;
        member->name = pg::as_utf8(pg::string_of(name));
        if (!core::names_exclude(walk.excludes, member->name) &&
            !core::paths_exclude(core::member_paths(object.excluded, member->name)))
            return true;
        free_converted(member->name, member->stored);
    }
    return false;
}

// Whether a part of it counts.
bool put_member(Walk& walk, const Member& member, const Place& object, bool first) {
    Mark before{walk.out, walk.length};
    if (!first) put(walk, ",");
    put_quoted(walk, member.name);
    put(walk, ":");
    bool any = put_value(walk, member.value, member_place(walk.fields, object, member.name));
    if (!any) take_back(walk, before);
    free_converted(member.name, member.stored);
    return any;
}

JsonbIterator* members_of(JsonbContainer* object) {
    JsonbValue unused;
    JsonbIterator* it = JsonbIteratorInit(object);
    (void)JsonbIteratorNext(&it, &unused, true);
    return it;
}

bool count_members(Walk& walk, JsonbContainer* object, const Place& place) {
    bool any = false;
    JsonbIterator* it = members_of(object);
    Member member;
    while (next_member(walk, &it, place, &member))
        if (put_member(walk, member, place, !any)) any = true;
    return any;
}

bool member_less(const Member& a, const Member& b) {
    CHECK_FOR_INTERRUPTS();
    return core::utf16_less(a.name, b.name);
}

struct Members {
    Member* begin;
    std::size_t count;
    std::size_t room;
};

constexpr std::size_t kFirstRoom = 16;

// Room for the members that are not excluded, which may be few.
Members gathered(const Walk& walk, JsonbContainer* object, const Place& place) {
    Members members{static_cast<Member*>(palloc(kFirstRoom * sizeof(Member))), 0, kFirstRoom};
    JsonbIterator* it = members_of(object);
    while (next_member(walk, &it, place, &members.begin[members.count])) {
        if (++members.count < members.room) continue;
        members.room *= 2;
        members.begin =
            static_cast<Member*>(repalloc_huge(members.begin, members.room * sizeof(Member)));
    }
    return members;
}

// Merges each two runs, the first of which begins at `from`.
void merge_runs(const Member* from, const Member* end, Member* out) {
    while (from != end) {
        const Member* middle = std::is_sorted_until(from, end, member_less);
        const Member* last = std::is_sorted_until(middle, end, member_less);
        out = std::merge(from, middle, middle, last, out, member_less);
        from = last;
    }
}

// The server sorts members by the length of their names, and those of one length by their bytes, so
// there are few runs to merge.
void sort(Members& members) {
    auto is_sorted = [&members] {
        return std::is_sorted(members.begin, members.begin + members.count, member_less);
    };
    if (is_sorted()) return;
    auto* spare =
        static_cast<Member*>(palloc_extended(members.count * sizeof(Member), MCXT_ALLOC_HUGE));
    do {
        merge_runs(members.begin, members.begin + members.count, spare);
        std::swap(members.begin, spare);
    } while (!is_sorted());
    pfree(spare);
}

bool write_members(Walk& walk, JsonbContainer* object, const Place& place) {
    bool any = false;
    Members members = gathered(walk, object, place);
    sort(members);
    for (std::size_t i = 0; i < members.count; i++) {
        CHECK_FOR_INTERRUPTS();
        if (put_member(walk, members.begin[i], place, !any)) any = true;
    }
    pfree(members.begin);
    return any;
}

bool put_object(Walk& walk, JsonbContainer* object, const Place& place) {
    put(walk, "{");
    bool any = walk.out == nullptr ? count_members(walk, object, place)
                                   : write_members(walk, object, place);
    put(walk, "}");
    return any;
}

// A value that does not count, and holds none that does, is treated as absent.
bool put_container(Walk& walk, JsonbContainer* container, const Place& place) {
    check_stack_depth();
    if (++walk.depth > core::kMaxJsonDepth) raise_too_deep();
    Mark before{walk.out, walk.length};
    bool any = JsonContainerIsObject(container) ? put_object(walk, container, place)
                                                : put_array(walk, container, place);
    walk.depth--;
    if (!any && !place.counts) take_back(walk, before);
    return any || place.counts;
}

void put_request(Walk& walk, Jsonb* request, const Place& place) {
    JsonbValue scalar;
    if (JsonbExtractScalar(&request->root, &scalar))
        (void)put_value(walk, scalar, place);
    else
        (void)put_container(walk, &request->root, place);
}

// In UTF-8, in memory of the current context; empty if no part of it counts. Refuses a request
// nested deeper than kMaxJsonDepth or longer than kMaxRequestBytes.
std::string_view canonical_form(Walk& walk, Jsonb* request) {
    Place place{core::root_paths(walk.excludes), core::root_paths(walk.fields), walk.all_count};
    std::size_t room = VARSIZE(request) * kLargestGrowth;
    if (room > core::kMaxRequestBytes) {
        put_request(walk, request, place);
        if (walk.length > core::kMaxRequestBytes) raise_request_too_large(walk.length);
        room = walk.written;
    }
    auto* form = static_cast<char*>(palloc_extended(room, MCXT_ALLOC_HUGE));
    walk.out = form;
    put_request(walk, request, place);
    auto length = static_cast<std::size_t>(walk.out - form);
    Assert(length <= room);
    if (walk.scratch != nullptr) pfree(walk.scratch);
    return {form, length};
}

// The hash is of UTF-8, whatever the database's encoding.
std::optional<std::string_view> utf8_of(const text* value) {
    if (value == nullptr) return std::nullopt;
    return pg::as_utf8(pg::bytes_of(value));
}

bytea* digest_of(const core::FingerprintInput& input) {
    unsigned char digest[core::kFingerprintBytes];
    if (!core::fingerprint(input, digest)) raise_digest();
    return pg::as_bytea(
        pg::make_text({reinterpret_cast<const char*>(digest), core::kFingerprintBytes}));
}

}  // namespace

core::Excludes fields_of(ArrayType* fields, const char* what, const char* purpose) {
    if (fields == nullptr) return {};
    pg::TextList list = pg::text_list(fields, what);
    for (std::size_t i = 0; i < list.count; i++) {
        CHECK_FOR_INTERRUPTS();
        list.items[i] = pg::as_utf8(list.items[i]);
        if (!core::valid_exclude(list.items[i])) raise_field(purpose, i);
    }
    std::size_t room = core::room_for_names(list.items, list.count);
    return core::sort_excludes(list.items, list.count,
                               room == 0 ? nullptr : static_cast<char*>(palloc(room)));
}

bytea* fingerprint_of(Jsonb* request, const text* method, const text* path,
                      const FingerprintRule& rule, bool* empty) {
    if (request == nullptr && method == nullptr && path == nullptr) return nullptr;
    core::FingerprintInput input;
    input.method = utf8_of(method);
    input.path = utf8_of(path);
    Walk walk{};
    walk.excludes = fields_of(rule.exclude, "exclude", "exclude");
    walk.fields = fields_of(rule.fields, "fields", "count");
    walk.all_count = rule.fields == nullptr;
    if (request != nullptr) input.request = canonical_form(walk, request);
    if (empty != nullptr) *empty = input.request && input.request->empty();
    bytea* result = digest_of(input);
    if (input.request) pfree(const_cast<char*>(input.request->data()));
    return result;
}

bytea* fingerprint_of_digest(const bytea* digest, const text* method, const text* path) {
    core::FingerprintInput input;
    input.method = utf8_of(method);
    input.path = utf8_of(path);
    input.request = psprintf("\"%s\"", text_to_cstring(in_hex(digest)));
    return digest_of(input);
}

text* in_hex(const bytea* bytes) {
    std::string_view raw = pg::bytes_of(bytes);
    auto* hex = static_cast<char*>(palloc(2 * raw.size() + 1));
    (void)hex_encode(raw.data(), raw.size(), hex);
    return pg::make_text({hex, 2 * raw.size()});
}

}  // namespace idem::request
