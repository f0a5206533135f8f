// Walks both requests side by side, as the server keeps them. The members of an object have the
// same order in each, by the length of their names and then by their bytes, so one pass finds a
// name that only one of them has. Parts with the same bytes are not walked.

#include "request/difference.hpp"

#include "pg/datum.hpp"
#include "pg/jsonb.hpp"

namespace idem::request {

namespace {

struct Comparison {
    core::Excludes excludes;
    core::Excludes fields;  // what counts, where not everything does
    StringInfoData path;
    int depth;
    Differences* found;
};

void compare_values(Comparison& c, const JsonbValue& stored, const JsonbValue& given,
                    const Place& place);

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

// A path shows no more than this of a name.
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

void note(Comparison& c, Change change, const JsonbValue& stored, const JsonbValue& given) {
    Differences* found = c.found;
    if (found->count == kMaxDifferences) {
        found->more = true;
        return;
    }
    found->list[found->count++] = {path_text(c.path), change, stored, given};
}

// Calls `then` with `append`'s member or element added to the path.
template <typename Append, typename Then>
void below(Comparison& c, Append append, Then then) {
    int length = c.path.len;
    append(&c.path);
    then();
    c.path.len = length;
    c.path.data[length] = '\0';
}

// ---- which parts count ----

// Of a member; false: it is excluded.
bool find_member_place(const Comparison& c, const Place& object, std::string_view name,
                       Place* place) {
    std::string_view utf8 = pg::as_utf8(name);
    *place = member_place(c.fields, object, utf8);
    bool left_out = core::names_exclude(c.excludes, utf8) || core::paths_exclude(place->excluded);
    if (utf8.data() != name.data()) pfree(const_cast<char*>(utf8.data()));
    return !left_out;
}

bool anything_counts(const Comparison& c, const JsonbValue& value, const Place& place);

bool member_counts(const Comparison& c, JsonbContainer* object, const Place& place) {
    JsonbValue name;
    JsonbValue value;
    JsonbIterator* it = JsonbIteratorInit(object);
    (void)JsonbIteratorNext(&it, &name, true);
    while (JsonbIteratorNext(&it, &name, true) == WJB_KEY) {
        CHECK_FOR_INTERRUPTS();
        (void)JsonbIteratorNext(&it, &value, true);
        Place member;
        if (find_member_place(c, place, pg::string_of(name), &member) &&
            anything_counts(c, value, member))
            return true;
    }
    return false;
}

bool element_counts(const Comparison& c, JsonbContainer* array, const Place& place) {
    Place each = element_place(place);
    if (core::paths_exclude(each.excluded)) return false;
    JsonbValue element;
    JsonbIterator* it = JsonbIteratorInit(array);
    (void)JsonbIteratorNext(&it, &element, true);
    while (JsonbIteratorNext(&it, &element, true) == WJB_ELEM) {
        CHECK_FOR_INTERRUPTS();
        if (anything_counts(c, element, each)) return true;
    }
    return false;
}

// A value that does not count, and holds none that does, is treated as absent.
bool anything_counts(const Comparison& c, const JsonbValue& value, const Place& place) {
    if (place.counts || value.type != jbvBinary) return place.counts;
    check_stack_depth();
    JsonbContainer* container = value.val.binary.data;
    return JsonContainerIsObject(container) ? member_counts(c, container, place)
                                            : element_counts(c, container, place);
}

// ---- objects ----

struct Member {
    bool exists;
    std::string_view name;
    JsonbValue value;
    Place place;
};

struct Members {
    JsonbIterator* it;
    Member next;
};

// The next member of which a part counts.
void advance(const Comparison& c, Members* members, const Place& object) {
    JsonbValue name;
    Member* next = &members->next;
    while (JsonbIteratorNext(&members->it, &name, true) == WJB_KEY) {
        CHECK_FOR_INTERRUPTS();
        (void)JsonbIteratorNext(&members->it, &next->value, true);
        next->exists = true;
        next->name = pg::string_of(name);
        if (find_member_place(c, object, next->name, &next->place) &&
            anything_counts(c, next->value, next->place))
            return;
    }
    next->exists = false;
}

Members members_of(const Comparison& c, JsonbContainer* object, const Place& place) {
    Members members{JsonbIteratorInit(object), {}};
    JsonbValue unused;
    (void)JsonbIteratorNext(&members.it, &unused, true);
    advance(c, &members, place);
    return members;
}

// In the server's order of members; the end sorts last.
int compare_members(const Member& a, const Member& b) {
    if (!a.exists || !b.exists) return a.exists ? -1 : 1;
    if (a.name.size() != b.name.size()) return a.name.size() < b.name.size() ? -1 : 1;
    return memcmp(a.name.data(), b.name.data(), a.name.size());
}

void compare_objects(Comparison& c, JsonbContainer* stored, JsonbContainer* given,
                     const Place& place) {
    Members ours = members_of(c, stored, place);
    Members theirs = members_of(c, given, place);
    while ((ours.next.exists || theirs.next.exists) && !c.found->more) {
        int order = compare_members(ours.next, theirs.next);
        const Member& member = order <= 0 ? ours.next : theirs.next;
        below(
            c, [&member](StringInfo path) { append_member(path, member.name); },
            [&] {
                if (order < 0)
                    note(c, Change::Missing, member.value, absent());
                else if (order > 0)
                    note(c, Change::Added, absent(), member.value);
                else
                    compare_values(c, member.value, theirs.next.value, member.place);
            });
        if (order <= 0) advance(c, &ours, place);
        if (order >= 0) advance(c, &theirs, place);
    }
}

// ---- arrays ----

struct Elements {
    JsonbIterator* it;
    bool exists;
    int number;
    JsonbValue value;
};

// The next element of which a part counts.
void advance(const Comparison& c, Elements* elements, const Place& each) {
    while (JsonbIteratorNext(&elements->it, &elements->value, true) == WJB_ELEM) {
        CHECK_FOR_INTERRUPTS();
        elements->number++;
        if (anything_counts(c, elements->value, each)) return;
    }
    elements->exists = false;
}

Elements elements_of(const Comparison& c, JsonbContainer* array, const Place& each) {
    Elements elements{JsonbIteratorInit(array), true, -1, {}};
    (void)JsonbIteratorNext(&elements.it, &elements.value, true);
    advance(c, &elements, each);
    return elements;
}

void compare_arrays(Comparison& c, JsonbContainer* stored, JsonbContainer* given,
                    const Place& place) {
    Place each = element_place(place);
    if (core::paths_exclude(each.excluded)) return;
    Elements ours = elements_of(c, stored, each);
    Elements theirs = elements_of(c, given, each);
    while ((ours.exists || theirs.exists) && !c.found->more) {
        int number = ours.exists ? ours.number : theirs.number;
        below(
            c, [number](StringInfo path) { appendStringInfo(path, "[%d]", number); },
            [&] {
                if (!theirs.exists)
                    note(c, Change::Missing, ours.value, absent());
                else if (!ours.exists)
                    note(c, Change::Added, absent(), theirs.value);
                else
                    compare_values(c, ours.value, theirs.value, each);
            });
        if (ours.exists) advance(c, &ours, each);
        if (theirs.exists) advance(c, &theirs, each);
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

// If the caller gave the fingerprint, a request may be deeper than a fingerprint reads. Parts below
// that depth are not distinguished.
void compare_containers(Comparison& c, const JsonbValue& stored, const JsonbValue& given,
                        const Place& place) {
    check_stack_depth();
    JsonbContainer* ours = stored.val.binary.data;
    JsonbContainer* theirs = given.val.binary.data;
    int bytes = stored.val.binary.len;
    if (bytes == given.val.binary.len && memcmp(ours, theirs, static_cast<Size>(bytes)) == 0)
        return;
    if (JsonContainerIsObject(ours) != JsonContainerIsObject(theirs) ||
        c.depth == core::kMaxJsonDepth) {
        note(c, Change::Changed, stored, given);
        return;
    }
    c.depth++;
    if (JsonContainerIsObject(ours))
        compare_objects(c, ours, theirs, place);
    else
        compare_arrays(c, ours, theirs, place);
    c.depth--;
}

// A part of each of the two counts.
void compare_values(Comparison& c, const JsonbValue& stored, const JsonbValue& given,
                    const Place& place) {
    if (stored.type == jbvBinary && given.type == jbvBinary)
        compare_containers(c, stored, given, place);
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

Differences differences_of(Jsonb* stored, Jsonb* given, const FingerprintRule& rule) {
    Differences found{};
    Comparison c{fields_of(rule.exclude, "exclude", "exclude"),
                 fields_of(rule.fields, "fields", "count"),
                 {},
                 0,
                 &found};
    initStringInfo(&c.path);
    appendStringInfoChar(&c.path, '$');
    Place root{core::root_paths(c.excludes), core::root_paths(c.fields), rule.fields == nullptr};
    compare_values(c, value_of(stored), value_of(given), root);
    pfree(c.path.data);
    return found;
}

}  // namespace idem::request
