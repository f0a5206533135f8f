// The composite types of the install script that C++ reads and writes. Only this file states the
// number, name and type of a field in C++. test/client/columns_test.cpp compares them with the
// script.
#pragma once

#include "pg/datum.hpp"

namespace idem::api {

template <typename Number>
struct Field {
    Number number;
    const char* name;
    Oid type;
};

template <typename Number, std::size_t count>
constexpr bool in_order(const Field<Number> (&fields)[count]) {
    for (std::size_t i = 0; i < count; i++)
        if (fields[i].number != static_cast<Number>(i)) return false;
    return count == static_cast<std::size_t>(Number::Count);
}

// Builds a value of such a type. All fields begin as null. A null pointer, an empty word and an
// infinite time leave a field null.
template <typename Number>
struct FieldRow {
    Datum values[static_cast<int>(Number::Count)];
    bool nulls[static_cast<int>(Number::Count)];

    void value(Number field, Datum datum) {
        values[static_cast<int>(field)] = datum;
        nulls[static_cast<int>(field)] = false;
    }
    void pointer(Number field, const void* pointer) {
        if (pointer != nullptr) value(field, PointerGetDatum(pointer));
    }
    void time(Number field, TimestampTz time) {
        if (!TIMESTAMP_NOT_FINITE(time)) value(field, TimestampTzGetDatum(time));
    }
    void word(Number field, std::string_view word) {
        if (!word.empty()) value(field, PointerGetDatum(pg::make_text(word)));
    }
};

// The result of idem_begin, idem_execute and idem_get.
enum class ClaimField {
    Outcome,
    Key,
    Scope,
    Principal,
    Token,
    Attempt,
    Status,
    StatusCode,
    Headers,
    Body,
    BodyOmitted,
    Error,
    Reference,
    RecoveryPoint,
    State,
    Holder,
    RetryAfter,
    CreatedAt,
    FinishedAt,
    LeaseUntil,
    ExpiresAt,
    Count
};

inline constexpr Field<ClaimField> kClaimFields[] = {
    {ClaimField::Outcome, "outcome", TEXTOID},
    {ClaimField::Key, "key", TEXTOID},
    {ClaimField::Scope, "scope", TEXTOID},
    {ClaimField::Principal, "principal", TEXTOID},
    {ClaimField::Token, "token", INT8OID},
    {ClaimField::Attempt, "attempt", INT4OID},
    {ClaimField::Status, "status", TEXTOID},
    {ClaimField::StatusCode, "status_code", INT4OID},
    {ClaimField::Headers, "headers", JSONBOID},
    {ClaimField::Body, "body", BYTEAOID},
    {ClaimField::BodyOmitted, "body_omitted", BOOLOID},
    {ClaimField::Error, "error", TEXTOID},
    {ClaimField::Reference, "reference", TEXTOID},
    {ClaimField::RecoveryPoint, "recovery_point", TEXTOID},
    {ClaimField::State, "state", JSONBOID},
    {ClaimField::Holder, "holder", TEXTOID},
    {ClaimField::RetryAfter, "retry_after", FLOAT8OID},
    {ClaimField::CreatedAt, "created_at", TIMESTAMPTZOID},
    {ClaimField::FinishedAt, "finished_at", TIMESTAMPTZOID},
    {ClaimField::LeaseUntil, "lease_until", TIMESTAMPTZOID},
    {ClaimField::ExpiresAt, "expires_at", TIMESTAMPTZOID},
};
static_assert(in_order(kClaimFields), "each field of idem_claim stands at its number");

// The result of idem_claim_due.
enum class DueField {
    Key,
    Scope,
    Principal,
    Token,
    Attempt,
    Operation,
    Method,
    Path,
    Request,
    RecoveryPoint,
    State,
    Error,
    CreatedAt,
    LeaseUntil,
    Count
};

inline constexpr Field<DueField> kDueFields[] = {
    {DueField::Key, "key", TEXTOID},
    {DueField::Scope, "scope", TEXTOID},
    {DueField::Principal, "principal", TEXTOID},
    {DueField::Token, "token", INT8OID},
    {DueField::Attempt, "attempt", INT4OID},
    {DueField::Operation, "operation", TEXTOID},
    {DueField::Method, "method", TEXTOID},
    {DueField::Path, "path", TEXTOID},
    {DueField::Request, "request", JSONBOID},
    {DueField::RecoveryPoint, "recovery_point", TEXTOID},
    {DueField::State, "state", JSONBOID},
    {DueField::Error, "error", TEXTOID},
    {DueField::CreatedAt, "created_at", TIMESTAMPTZOID},
    {DueField::LeaseUntil, "lease_until", TIMESTAMPTZOID},
};
static_assert(in_order(kDueFields), "each field of idem_due stands at its number");

// A response, as an operation of idem_execute may return it.
enum class ResponseField { StatusCode, Headers, Body, Count };

inline constexpr Field<ResponseField> kResponseFields[] = {
    {ResponseField::StatusCode, "status_code", INT4OID},
    {ResponseField::Headers, "headers", JSONBOID},
    {ResponseField::Body, "body", BYTEAOID},
};
static_assert(in_order(kResponseFields), "each field of idem_response stands at its number");

// The result of idem_explain.
enum class ExplanationField {
    Outcome,
    Reason,
    Why,
    Next,
    Execution,
    Key,
    Scope,
    Principal,
    RetryAfter,
    RetryAt,
    Record,
    Lease,
    Holder,
    Request,
    Policy,
    Notes,
    IsStandby,
    ExplainedAt,
    Node,
    Count
};

inline constexpr Field<ExplanationField> kExplanationFields[] = {
    {ExplanationField::Outcome, "outcome", TEXTOID},
    {ExplanationField::Reason, "reason", TEXTOID},
    {ExplanationField::Why, "why", TEXTOID},
    {ExplanationField::Next, "next", TEXTOID},
    {ExplanationField::Execution, "execution", TEXTOID},
    {ExplanationField::Key, "key", TEXTOID},
    {ExplanationField::Scope, "scope", TEXTOID},
    {ExplanationField::Principal, "principal", TEXTOID},
    {ExplanationField::RetryAfter, "retry_after", FLOAT8OID},
    {ExplanationField::RetryAt, "retry_at", TIMESTAMPTZOID},
    {ExplanationField::Record, "record", JSONBOID},
    {ExplanationField::Lease, "lease", JSONBOID},
    {ExplanationField::Holder, "holder", JSONBOID},
    {ExplanationField::Request, "request", JSONBOID},
    {ExplanationField::Policy, "policy", JSONBOID},
    {ExplanationField::Notes, "notes", TEXTARRAYOID},
    {ExplanationField::IsStandby, "is_standby", BOOLOID},
    {ExplanationField::ExplainedAt, "explained_at", TIMESTAMPTZOID},
    {ExplanationField::Node, "node", TEXTOID},
};
static_assert(in_order(kExplanationFields), "each field of idem_explanation stands at its number");

inline constexpr int kExplanationFieldCount = std::size(kExplanationFields);

inline constexpr int kClaimFieldCount = std::size(kClaimFields);

// A field of a row built by the caller: looked up by name, as the type may have gained fields.
inline Datum field_of(HeapTupleHeader claim, ClaimField field, bool* is_null) {
    return GetAttributeByName(claim, kClaimFields[static_cast<int>(field)].name, is_null);
}
inline Datum field_of(HeapTupleHeader response, ResponseField field, bool* is_null) {
    return GetAttributeByName(response, kResponseFields[static_cast<int>(field)].name, is_null);
}

}  // namespace idem::api
