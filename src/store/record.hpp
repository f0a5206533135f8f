// A record as the protocol handles it: the row of one (scope, principal, key), and kColumns, the
// one table of its columns. From kColumns follow how a record is read, written, copied and freed,
// the statements of the SQL store, and the columns that the heap store requires of
// idempotency.record. test/client/columns_test.cpp compares the install script with it, which no
// C++ can write.
#pragma once

#include <array>

#include "core/decision.hpp"
#include "pg/datum.hpp"

namespace idem::store {

inline constexpr const char* kRecordTable = "record";

// The name of a record. The texts belong to the caller.
struct Identity {
    text* scope;
    text* principal;
    text* key;
    std::uint64_t hash;  // of the three, equal in every backend; for locks and hash tables, where a
                         // collision is harmless: the row decides, and clients cannot construct one
};

// The key may be nullptr if it is yet to be made.
Identity make_identity(text* scope, text* principal, text* key);

// A value stored in the clear or sealed, each in a column of its own. In memory both may be known;
// then the sealed one is written. claim/sealing.hpp seals and opens.
template <typename T>
struct Kept {
    T* plain;
    bytea* sealed;

    // Drops both earlier forms.
    Kept& operator=(T* value) {
        plain = value;
        sealed = nullptr;
        return *this;
    }
    bool is_null() const { return plain == nullptr && sealed == nullptr; }
};

// The source and purpose of a fingerprint, as bits.
enum FingerprintOf : std::int32_t {
    kOfMethod = 1,
    kOfPath = 2,
    kOfCaller = 4,  // the caller gave it, and its source is not known
    kForKey = 8,    // the key was derived from it
};

// For a null of the row, pointers are nullptr, times pg::kNoTime, and backend_pid and
// fingerprint_of 0. Each member has its line in kColumns.
struct Record {
    Identity id;
    core::Status status;
    core::IfSilent if_silent;  // the policy at its claim: its status after a timeout
    bool body_omitted;         // the body was over the limit, and the policy said to leave it out
    bool omit_large_body;      // the policy at its claim: whether to leave a large body out
    std::int32_t body_limit;   // the policy at its claim, in bytes
    std::optional<std::int32_t> status_code;
    std::int32_t attempt;
    std::int32_t backend_pid;     // claimed with `hold`: the backend of the holder; 0: without
    std::int32_t fingerprint_of;  // FingerprintOf; 0: of the request alone, or there is none
    std::int64_t token;
    std::int64_t lease;           // microseconds; the default of heartbeats
    TimestampTz created_at;       // first claim of the record
    TimestampTz claimed_at;       // claim of this attempt
    TimestampTz expires_at;       // end of the ttl
    TimestampTz retained_until;   // end of the retention: when the row may be removed
    TimestampTz lease_until;      // in progress, once committed
    TimestampTz next_attempt_at;  // retryable
    TimestampTz finished_at;
    TimestampTz backend_start;  // distinguishes that backend from a later one with the same pid
    Kept<bytea> fingerprint;
    text* operation;  // the operation of idem_execute; nullptr: not known
    Kept<Jsonb> headers;
    Kept<bytea> body;  // in the clear as the row has it, compressed or in the TOAST table: only the
                       // answered caller reads it. pg_detoast_datum() first
    Kept<text> error;
    Kept<text> reference;  // of the provider that knows the result of the attempt
    Kept<text> recovery_point;
    Kept<Jsonb> state;
    Kept<text> holder;
    Kept<Jsonb> request;
    Kept<text> method;  // of the request, where it is stored
    Kept<text> path;
    ArrayType* counted;   // the fields in the fingerprint; nullptr: all
    ArrayType* excluded;  // the fields left out of the fingerprint
    text* resolved_by;    // the operator who decided with idem_resolve
    text* sealed_by;      // the id of the key that sealed its values
    bytea* salt;          // from that key and this salt the record's own key is derived
};

// Who reads a column in the view idempotency.records. ByMonitors: also members of pg_monitor, who
// may not see requests and answers. ByReaders: only roles that may read the whole view. Never: no
// role.
enum class Seen { ByMonitors, ByReaders, Never };

struct ColumnType {
    const char* name;
    Oid type;
    bool may_be_null;
    Seen seen;
};

// For a Kept member, one of two columns.
enum class Part { Whole, Plain, Sealed };

// The member belongs to the Record or to its Identity.
template <typename Owner, typename Value, Part which = Part::Whole>
struct Column : ColumnType {
    Value Owner::*member;
};

template <typename Owner, typename Value>
constexpr Column<Owner, Value> not_null(const char* name, Oid type, Value Owner::*member,
                                        Seen seen) {
    return {{name, type, false, seen}, member};
}

template <typename Owner, typename Value>
constexpr Column<Owner, Value> nullable(const char* name, Oid type, Value Owner::*member,
                                        Seen seen) {
    return {{name, type, true, seen}, member};
}

template <typename T>
constexpr Column<Record, Kept<T>, Part::Plain> kept(const char* name, Oid type,
                                                    Kept<T> Record::*member, Seen seen) {
    return {{name, type, true, seen}, member};
}

template <typename T>
constexpr Column<Record, Kept<T>, Part::Sealed> sealed(const char* name, Kept<T> Record::*member) {
    return {{name, BYTEAOID, true, Seen::Never}, member};
}

// The bytes of an Owner in the column's member; 0 for a member of another struct. Each column of a
// Kept member counts half.
template <typename Owner, typename Of, typename Value, Part which>
constexpr std::size_t size_in(const Column<Of, Value, which>&) {
    if (!std::is_same_v<Owner, Of>) return 0;
    return which == Part::Whole ? sizeof(Value) : sizeof(Value) / 2;
}

// The columns of idempotency.record in their order, the identity first.
inline constexpr std::tuple kColumns{
    not_null("scope", TEXTOID, &Identity::scope, Seen::ByMonitors),
    not_null("principal", TEXTOID, &Identity::principal, Seen::ByMonitors),
    not_null("key", TEXTOID, &Identity::key, Seen::ByMonitors),
    not_null("status", CHAROID, &Record::status, Seen::ByMonitors),
    not_null("if_silent", CHAROID, &Record::if_silent, Seen::Never),
    not_null("body_omitted", BOOLOID, &Record::body_omitted, Seen::ByMonitors),
    not_null("omit_large_body", BOOLOID, &Record::omit_large_body, Seen::Never),
    nullable("status_code", INT4OID, &Record::status_code, Seen::ByMonitors),
    not_null("attempt", INT4OID, &Record::attempt, Seen::ByMonitors),
    not_null("body_limit", INT4OID, &Record::body_limit, Seen::Never),
    not_null("token", INT8OID, &Record::token, Seen::Never),
    not_null("lease_us", INT8OID, &Record::lease, Seen::Never),
    nullable("backend_pid", INT4OID, &Record::backend_pid, Seen::Never),
    nullable("fingerprint_of", INT4OID, &Record::fingerprint_of, Seen::Never),
    not_null("created_at", TIMESTAMPTZOID, &Record::created_at, Seen::ByMonitors),
    not_null("claimed_at", TIMESTAMPTZOID, &Record::claimed_at, Seen::ByMonitors),
    not_null("expires_at", TIMESTAMPTZOID, &Record::expires_at, Seen::ByMonitors),
    not_null("retained_until", TIMESTAMPTZOID, &Record::retained_until, Seen::ByMonitors),
    nullable("lease_until", TIMESTAMPTZOID, &Record::lease_until, Seen::ByMonitors),
    nullable("next_attempt_at", TIMESTAMPTZOID, &Record::next_attempt_at, Seen::ByMonitors),
    nullable("finished_at", TIMESTAMPTZOID, &Record::finished_at, Seen::ByMonitors),
    nullable("backend_start", TIMESTAMPTZOID, &Record::backend_start, Seen::Never),
    kept("fingerprint", BYTEAOID, &Record::fingerprint, Seen::ByReaders),
    nullable("operation", TEXTOID, &Record::operation, Seen::ByMonitors),
    kept("headers", JSONBOID, &Record::headers, Seen::ByReaders),
    kept("body", BYTEAOID, &Record::body, Seen::ByReaders),
    kept("error", TEXTOID, &Record::error, Seen::ByReaders),
    kept("reference", TEXTOID, &Record::reference, Seen::ByReaders),
    kept("recovery_point", TEXTOID, &Record::recovery_point, Seen::ByMonitors),
    kept("state", JSONBOID, &Record::state, Seen::ByReaders),
    kept("holder", TEXTOID, &Record::holder, Seen::ByMonitors),
    kept("request", JSONBOID, &Record::request, Seen::ByReaders),
    kept("method", TEXTOID, &Record::method, Seen::ByReaders),
    kept("path", TEXTOID, &Record::path, Seen::ByReaders),
    nullable("counted", TEXTARRAYOID, &Record::counted, Seen::Never),
    nullable("excluded", TEXTARRAYOID, &Record::excluded, Seen::Never),
    nullable("resolved_by", TEXTOID, &Record::resolved_by, Seen::ByMonitors),
    nullable("sealed_by", TEXTOID, &Record::sealed_by, Seen::ByMonitors),
    nullable("salt", BYTEAOID, &Record::salt, Seen::Never),
    sealed("sealed_fingerprint", &Record::fingerprint),
    sealed("sealed_headers", &Record::headers),
    sealed("sealed_body", &Record::body),
    sealed("sealed_error", &Record::error),
    sealed("sealed_reference", &Record::reference),
    sealed("sealed_recovery_point", &Record::recovery_point),
    sealed("sealed_state", &Record::state),
    sealed("sealed_holder", &Record::holder),
    sealed("sealed_request", &Record::request),
    sealed("sealed_method", &Record::method),
    sealed("sealed_path", &Record::path),
};

inline constexpr int kColumnCount = std::tuple_size_v<decltype(kColumns)>;

// A member without a line above would be neither stored nor copied. The struct has no padding
// between members, so a member not counted here makes the struct larger.
template <typename Owner>
constexpr std::size_t size_of_members(std::size_t others) {
    std::size_t size = others;
    std::apply([&size](const auto&... column) { (..., (size += size_in<Owner>(column))); },
               kColumns);
    return TYPEALIGN(alignof(Owner), size);
}
static_assert(size_of_members<Identity>(sizeof(Identity::hash)) == sizeof(Identity),
              "each member of Identity but the hash has one line in kColumns");
static_assert(size_of_members<Record>(sizeof(Record::id)) == sizeof(Record),
              "each member of Record but the identity has one line in kColumns");

// The columns without the members.
inline constexpr auto kColumnTypes = std::apply(
    [](const auto&... column) { return std::array<ColumnType, kColumnCount>{column...}; },
    kColumns);

template <typename A, typename B>
constexpr bool is_same_member(A a, B b) {
    if constexpr (std::is_same_v<A, B>)
        return a == b;
    else
        return false;
}

template <typename Owner, typename Value, Part which>
constexpr Part part_of(const Column<Owner, Value, which>&) {
    return which;
}

// The number of a member's column as the server counts: from 1. For a Kept member, the plain
// value's unless the sealed one's is asked for.
template <typename Owner, typename Value>
constexpr AttrNumber attribute_of(Value Owner::*member, bool is_sealed = false) {
    AttrNumber number = 0;
    AttrNumber found = 0;
    std::apply(
        [&](const auto&... column) {
            ((++number, found = is_same_member(column.member, member) &&
                                        (part_of(column) == Part::Sealed) == is_sealed
                                    ? number
                                    : found),
             ...);
        },
        kColumns);
    return found;
}

// If a member stood twice, the sizes above could be right although another is missing.
static_assert(std::apply(
                  [](const auto&... column) {
                      AttrNumber number = 0;
                      return (... && (attribute_of(column.member,
                                                   part_of(column) == Part::Sealed) == ++number));
                  },
                  kColumns),
              "no member has two lines in kColumns, or three if it is Kept");

template <typename Owner, typename Value>
constexpr const ColumnType& column_of(Value Owner::*member) {
    return kColumnTypes[attribute_of(member) - 1];
}

// The primary key has the identity's columns in another order: see the install script.
inline constexpr text* Identity::*kPrimaryKey[] = {&Identity::key, &Identity::scope,
                                                   &Identity::principal};
inline constexpr int kKeyColumns = std::size(kPrimaryKey);

inline constexpr std::size_t kKeptCount = std::apply(
    [](const auto&... column) { return (std::size_t{part_of(column) == Part::Plain} + ...); },
    kColumns);

// A Kept member of any type: its plain column and value, and where its sealed value is.
struct KeptValue {
    const ColumnType* column;
    void* plain;
    bytea** sealed;

    bool is_null() const { return plain == nullptr && *sealed == nullptr; }
    bool is_unsealed() const { return plain != nullptr && *sealed == nullptr; }
    bool is_unopened() const { return plain == nullptr && *sealed != nullptr; }
};

using KeptValues = std::array<KeptValue, kKeptCount>;

// In the order of the columns. Valid as long as the record, until a plain value changes.
KeptValues kept_values(Record* record);

// As the columns' values, which point into the record. Of a value known in both forms, the sealed
// one. An error if a sealed record has an unsealed value.
void to_columns(const Record& record, Datum* values, bool* nulls);

// All but the identity, which the caller knows; copies in the current memory context.
void from_columns(const Datum* values, const bool* nulls, Record* record);

// Distinguishes one state of a row from the next: each claim has its token, and ends once. In
// between, a heartbeat or checkpoint moves the end of the lease. A takeover must not miss one that
// the holder may have sent.
struct Version {
    std::int64_t token;
    core::Status status;
    TimestampTz lease_until;  // pg::kNoTime: any
};

inline Version version_of(const Record& record) {
    return {record.token, record.status, record.lease_until};
}

inline bool is_version(const Version& row, const Version& expected) {
    return row.token == expected.token && row.status == expected.status &&
           (expected.lease_until == pg::kNoTime || row.lease_until == expected.lease_until);
}

inline Version any_lease_of(const Record& record) {
    return {record.token, record.status, pg::kNoTime};
}

// A derived key is removed when its window ends.
inline bool is_derived(const Record& record) {
    return (record.fingerprint_of & kForKey) != 0;
}

// For a caller that found another version than the expected one: a serialization failure (40001).
[[noreturn]] void raise_claim_overtaken();

// The result of a look at the row of a key.
struct Look {
    bool found;            // there is a row
    TransactionId writer;  // another transaction that has written or removed the row and may yet
                           // commit; InvalidTransactionId: none, or a store that cannot see it
    bool has_new_version;  // of a writer's; else the row is only being removed
};

// Changes of the row of a key by other transactions, relative to a snapshot.
struct Past {
    bool known;                // the snapshot sees all transactions that made or removed a version
    TimestampTz leased_until;  // of the claim that others have committed and not ended, even if
                               // this transaction has ended it; pg::kNoTime: none
};

bool same_identity(const Identity& a, const Identity& b);

// A copy in the current memory context that shares nothing with the original. Sealed values are
// copied sealed.
Record copy_record(const Record& record);

// Frees what copy_record made.
void free_record(Record* record);

}  // namespace idem::store
