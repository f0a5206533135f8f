// Both requests are walked side by side, as the server keeps them: the members of an object stand
// in the same order in each, by the length of their names and then by their bytes, so one pass
// finds the name that only one of them has. Parts that are the same bytes are not walked.

#include "claim/difference.hpp"

#include "pg/datum.hpp"
#include "pg/jsonb.hpp"

namespace idem::claim {

namespace {

struct Comparison {
    const core::Excludes& excludes;
    StringInfoData path;
    int depth;
    Differences* found;
};

void compare_values(Comparison& c, const JsonbValue& stored, const JsonbValue& given,
                    const core::Paths& paths);

constexpr JsonbValue absent() {
    JsonbValue value{};
    value.type = jbvNull;
    return value;
}

// ---- paths ----

bool is_plain_name(std::string_view name) {
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
    for (char c : name)
        if (!(c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
              (c >= 'A' && c <= 'Z')))
            return false;
    return true;
}

// No name has more of it than a path shows.
void append_member(StringInfo path, std::string_view name) {
    auto length = static_cast<int>(name.size());
    if (length > kLongestPath) length = pg_mbcliplen(name.data(), length, kLongestPath);
    if (is_plain_name(name)) {
        appendStringInfo(path, ".%.*s", length, name.data());
        return;
    }
    char* terminated = pnstrdup(name.data(), static_cast<Size>(length));
    appendStringInfoChar(path, '.');
    escape_json(path, terminated);
    pfree(terminated);
}

text* path_text(const StringInfoData& path) {
    if (path.len <= kLongestPath)
        return pg::make_text({path.data, static_cast<std::size_t>(path.len)});
    int length = pg_mbcliplen(path.data, path.len, kLongestPath);
    return cstring_to_text(psprintf("%.*s...", length, path.data));
}

// ---- what was found ----

bool is_full(const Comparison& c) {
    return c.found->more;
}

void note(Comparison& c, Change change, const JsonbValue& stored, const JsonbValue& given) {
    Differences* found = c.found;
    if (found->count == kMaxDifferences) {
        found->more = true;
        return;
    }
    found->list[found->count++] = {path_text(c.path), change, stored, given};
}

// With the path of a member or an element, which `append` adds, for as long as `then` runs.
template <typename Append, typename Then>
void below(Comparison& c, Append append, Then then) {
    int length = c.path.len;
    append(&c.path);
    then();
    c.path.len = length;
    c.path.data[length] = '\0';
}

// ---- objects ----

struct Member {
    bool exists;
    std::string_view name;
    JsonbValue value;
};

struct Members {
    JsonbIterator* it;
    Member next;
};

core::Paths paths_of_member(const core::Paths& object, std::string_view name, bool* left_out,
                            const core::Excludes& excludes) {
    std::string_view utf8 = pg::as_utf8(name);
    core::Paths paths = core::member_paths(object, utf8);
    *left_out = core::names_exclude(excludes, utf8) || core::paths_exclude(paths);
    if (utf8.data() != name.data()) pfree(const_cast<char*>(utf8.data()));
    return paths;
}

// The next member that counts.
void advance(const Comparison& c, Members* members, const core::Paths& object) {
    JsonbValue name;
    while (JsonbIteratorNext(&members->it, &name, true) == WJB_KEY) {
        CHECK_FOR_INTERRUPTS();
        members->next = {true, pg::string_of(name), {}};
        (void)JsonbIteratorNext(&members->it, &members->next.value, true);
        bool left_out;
        (void)paths_of_member(object, members->next.name, &left_out, c.excludes);
        if (!left_out) return;
    }
    members->next.exists = false;
}

Members members_of(const Comparison& c, JsonbContainer* object, const core::Paths& paths) {
    Members members{JsonbIteratorInit(object), {}};
    JsonbValue unused;
    (void)JsonbIteratorNext(&members.it, &unused, true);
    advance(c, &members, paths);
    return members;
}

// As the server orders the members of an object; what is at its end comes last.
int compare_members(const Member& a, const Member& b) {
    if (!a.exists || !b.exists) return a.exists ? -1 : 1;
    if (a.name.size() != b.name.size()) return a.name.size() < b.name.size() ? -1 : 1;
    return memcmp(a.name.data(), b.name.data(), a.name.size());
}

void compare_objects(Comparison& c, JsonbContainer* stored, JsonbContainer* given,
                     const core::Paths& paths) {
    Members ours = members_of(c, stored, paths);
    Members theirs = members_of(c, given, paths);
    while ((ours.next.exists || theirs.next.exists) && !is_full(c)) {
        int order = compare_members(ours.next, theirs.next);
        std::string_view name = order <= 0 ? ours.next.name : theirs.next.name;
        below(
            c, [name](StringInfo path) { append_member(path, name); },
            [&] {
                bool left_out;
                if (order < 0)
                    note(c, Change::Missing, ours.next.value, absent());
                else if (order > 0)
                    note(c, Change::Added, absent(), theirs.next.value);
                else
                    compare_values(c, ours.next.value, theirs.next.value,
                                   paths_of_member(paths, name, &left_out, c.excludes));
            });
        if (order <= 0) advance(c, &ours, paths);
        if (order >= 0) advance(c, &theirs, paths);
    }
}

// ---- arrays ----

bool next_element(JsonbIterator** it, JsonbValue* element) {
    return JsonbIteratorNext(it, element, true) == WJB_ELEM;
}

// By their places.
void compare_arrays(Comparison& c, JsonbContainer* stored, JsonbContainer* given,
                    const core::Paths& paths) {
    core::Paths each = core::element_paths(paths);
    if (core::paths_exclude(each)) return;
    JsonbIterator* ours = JsonbIteratorInit(stored);
    JsonbIterator* theirs = JsonbIteratorInit(given);
    JsonbValue our_element;
    JsonbValue their_element;
    (void)JsonbIteratorNext(&ours, &our_element, true);
    (void)JsonbIteratorNext(&theirs, &their_element, true);
    bool we = next_element(&ours, &our_element);
    bool they = next_element(&theirs, &their_element);
    for (int place = 0; (we || they) && !is_full(c); place++) {
        CHECK_FOR_INTERRUPTS();
        below(
            c, [place](StringInfo path) { appendStringInfo(path, "[%d]", place); },
            [&] {
                if (!they)
                    note(c, Change::Missing, our_element, absent());
                else if (!we)
                    note(c, Change::Added, absent(), their_element);
                else
                    compare_values(c, our_element, their_element, each);
            });
        we = we && next_element(&ours, &our_element);
        they = they && next_element(&theirs, &their_element);
    }
}

// ---- values ----

bool same_scalar(const JsonbValue& a, const JsonbValue& b) {
    switch (a.type) {
        case jbvNull:
            return true;
        case jbvBool:
            return a.val.boolean == b.val.boolean;
        case jbvString:
            return pg::string_of(a) == pg::string_of(b);
        case jbvNumeric:
            return DatumGetBool(DirectFunctionCall2(numeric_eq, NumericGetDatum(a.val.numeric),
                                                    NumericGetDatum(b.val.numeric)));
        default:
            return false;
    }
}

bool same_bytes(const JsonbValue& a, const JsonbValue& b) {
    return a.val.binary.len == b.val.binary.len &&
           memcmp(a.val.binary.data, b.val.binary.data, static_cast<Size>(a.val.binary.len)) == 0;
}

// Deeper than a fingerprint reads, where the caller gave one, parts are not told apart.
void compare_containers(Comparison& c, const JsonbValue& stored, const JsonbValue& given,
                        const core::Paths& paths) {
    check_stack_depth();
    if (same_bytes(stored, given)) return;
    JsonbContainer* ours = stored.val.binary.data;
    JsonbContainer* theirs = given.val.binary.data;
    if (JsonContainerIsObject(ours) != JsonContainerIsObject(theirs) ||
        c.depth == core::kMaxJsonDepth) {
        note(c, Change::Changed, stored, given);
        return;
    }
    c.depth++;
    if (JsonContainerIsObject(ours))
        compare_objects(c, ours, theirs, paths);
    else
        compare_arrays(c, ours, theirs, paths);
    c.depth--;
}

void compare_values(Comparison& c, const JsonbValue& stored, const JsonbValue& given,
                    const core::Paths& paths) {
    if (stored.type == jbvBinary && given.type == jbvBinary)
        compare_containers(c, stored, given, paths);
    else if (stored.type != given.type || !same_scalar(stored, given))
        note(c, Change::Changed, stored, given);
}

// A scalar is kept as an array of one.
JsonbValue value_of(Jsonb* request) {
    JsonbValue value;
    if (JsonbExtractScalar(&request->root, &value)) return value;
    value.type = jbvBinary;
    value.val.binary.data = &request->root;
    value.val.binary.len = static_cast<int>(VARSIZE(request) - VARHDRSZ);
    return value;
}

}  // namespace

Differences differences_of(Jsonb* stored, Jsonb* given, const core::Excludes& excludes) {
    Differences found{};
    Comparison comparison{excludes, {}, 0, &found};
    initStringInfo(&comparison.path);
    appendStringInfoChar(&comparison.path, '$');
    compare_values(comparison, value_of(stored), value_of(given), core::root_paths(excludes));
    pfree(comparison.path.data);
    return found;
}

}  // namespace idem::claim
