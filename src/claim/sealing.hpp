// What of a record lies sealed: sealed when it is put into the record, long before that is written,
// and opened where it is needed and nowhere else. Who replaces, forgets or sweeps a record, or
// prolongs its lease, needs no key.
//
// The errors, beside those of the server: ID503, where the keys or one of them can't be had, and
// ID500, where a value does not open. Both are counted, and nothing is executed or written.
#pragma once

#include "store/record.hpp"

namespace idem::claim {

// An error (ID503) if nothing could be sealed now: before a claim is granted whose result will have
// to be.
void require_key(const store::Identity& id);

// Seals what is not sealed yet, if it is to be, or if the record is sealed already. What another
// key than the current one has sealed is sealed anew on this occasion; where there is nothing to
// seal, no key is needed. What is added to sealed values is sealed only if those open: with another
// key of the same id the record would otherwise have values of two.
void seal(store::Record* record, bool encrypt);

// The same for a caller that passes over a record that can't be sealed: false, where seal() would
// have raised an error for want of a key or because a value does not open. That is counted, and the
// record is not to be written.
bool try_seal(store::Record* record, bool encrypt);

// The id of the current key, in the current memory context. An error (ID503) if there is none.
text* current_key(const store::Identity& id);

// Whether another key than the current one has sealed the record.
bool is_sealed_otherwise(const store::Record& record);

// Seals all of the record anew. False if something of it does not open, which is not counted.
bool reseal(store::Record* record);

// The value of a column whose plain form is given, or else the sealed one; nullptr if neither is.
void* opened_value(const store::Record& record, const store::ColumnType& column, void* plain,
                   const bytea* sealed);

// The value of a member, in the current memory context or in the record.
template <typename T>
T* opened(const store::Record& record, store::Kept<T> store::Record::*member) {
    const store::Kept<T>& value = record.*member;
    if (value.plain != nullptr || value.sealed == nullptr) return value.plain;
    return static_cast<T*>(
        opened_value(record, store::column_of(member), value.plain, value.sealed));
}

// For a caller that goes on without the values: a sentence why those of the record, or one of them,
// do not open now; nullptr if they do. Not counted.
const char* why_closed(store::Record* record);

// A sentence why nothing can be sealed now; nullptr if it can.
const char* why_no_keys();

}  // namespace idem::claim
