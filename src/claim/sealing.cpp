// Sealed values are to be opened elsewhere, by clients and where a dump is restored into a database
// of another encoding. So what is sealed is UTF-8, and JSON as text; and so is what it is bound to.
// (SQL_ASCII says nothing of its bytes, so they are taken as they are.)

#include "claim/sealing.hpp"

#include <algorithm>
#include <functional>

#include "config/encryption_keys.hpp"
#include "pg/jsonb.hpp"
#include "stats/counters.hpp"
#include "store/key_use.hpp"

namespace idem::claim {

namespace {

using store::ColumnType;
using store::KeptValue;
using store::KeptValues;
using store::Record;

// Our own class, beside ID404 and ID409: these are not the caller's fault.
constexpr int kNotOpened = MAKE_SQLSTATE('I', 'D', '5', '0', '0');
constexpr int kNoKey = MAKE_SQLSTATE('I', 'D', '5', '0', '3');

// ---- errors ----

void count_error(const store::Identity& id) {
    stats::count(pg::bytes_of(id.scope), core::Counter::EncryptionErrors);
}

[[noreturn]] void raise_no_keys(const store::Identity& id, const char* why) {
    count_error(id);
    ereport(ERROR,
            (errcode(kNoKey), errmsg("encryption keys are not available"), errdetail("%s", why),
             errhint("Ask an administrator to provide the file of idempotency.encryption_key_file, "
                     "and to reload the configuration.")));
    pg_unreachable();
}

[[noreturn]] void raise_not_opened(const Record& record, const char* column, const char* why) {
    count_error(record.id);
    ereport(ERROR, (errcode(kNotOpened), errmsg("a value could not be decrypted"),
                    errdetail("Column %s of the record: %s", column, why),
                    errhint("Compare the keys of this server with those of the one that wrote the "
                            "record.")));
    pg_unreachable();
}

[[noreturn]] void raise_not_sealed() {
    ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not encrypt a value"),
                    errdetail("OpenSSL refused the computation.")));
    pg_unreachable();
}

// ---- values as bytes, and back ----

std::string_view portable(std::string_view bytes) {
    return GetDatabaseEncoding() == PG_SQL_ASCII ? bytes : pg::as_utf8(bytes);
}

void wipe_and_free(std::string_view bytes) {
    core::wipe(const_cast<char*>(bytes.data()), bytes.size());
    pfree(const_cast<char*>(bytes.data()));
}

struct Plain {
    std::string_view bytes;
    std::string_view made;  // what has to be wiped when it has been sealed
};

Plain plain_of(Oid type, void* value) {
    if (type == BYTEAOID) return {pg::bytes_of(pg_detoast_datum(static_cast<bytea*>(value))), {}};
    bool is_json = type == JSONBOID;
    StringInfoData json{};
    if (is_json) {
        // Allocated at once, so that no shorter copy is left behind.
        auto* object = static_cast<Jsonb*>(value);
        initStringInfo(&json);
        enlargeStringInfo(&json, static_cast<int>(pg::jsonb_text_size(object)) + 1);
        (void)JsonbToCString(&json, &object->root, VARSIZE(object));
    }
    std::string_view stored = is_json
                                  ? std::string_view(json.data, static_cast<std::size_t>(json.len))
                                  : pg::bytes_of(value);
    std::string_view utf8 = portable(stored);
    bool converted = utf8.data() != stored.data();
    if (is_json && converted) wipe_and_free(stored);
    return {utf8, is_json || converted ? utf8 : std::string_view()};
}

// Takes over `bytes`, a bytea that has just been opened.
text* text_value(bytea* bytes) {
    std::string_view utf8 = pg::bytes_of(bytes);
    if (GetDatabaseEncoding() == PG_SQL_ASCII) return bytes;
    char* stored = pg_any_to_server(utf8.data(), static_cast<int>(utf8.size()), PG_UTF8);
    if (stored == utf8.data()) return bytes;
    text* value = cstring_to_text(stored);
    wipe_and_free({stored, strlen(stored)});
    core::wipe(VARDATA(bytes), utf8.size());
    pfree(bytes);
    return value;
}

// ---- one value ----

core::SealPlace place_of(const Record& record, const ColumnType& column) {
    return {pg::bytes_of(record.sealed_by), column.name, portable(pg::bytes_of(record.id.scope)),
            portable(pg::bytes_of(record.id.principal)), portable(pg::bytes_of(record.id.key))};
}

bytea* new_bytea(std::size_t size) {
    auto* result = static_cast<bytea*>(palloc(VARHDRSZ + size));
    SET_VARSIZE(result, VARHDRSZ + size);
    return result;
}

unsigned char* data_of(bytea* value) {
    return reinterpret_cast<unsigned char*>(VARDATA(value));
}

// nullptr if OpenSSL refused.
bytea* sealed_bytes(const core::Key& key, const Record& record, const ColumnType& column,
                    std::string_view plain) {
    bytea* result = new_bytea(plain.size() + core::kSealOverhead);
    return core::seal(key, place_of(record, column), plain, data_of(result)) ? result : nullptr;
}

bytea* sealed_value(const core::Key& key, const Record& record, const ColumnType& column,
                    void* value) {
    Plain plain = plain_of(column.type, value);
    bytea* result = sealed_bytes(key, record, column, plain.bytes);
    if (plain.made.data() != nullptr) wipe_and_free(plain.made);
    if (result == nullptr) raise_not_sealed();
    return result;
}

enum class Fault { None, NoKeys, NoSuchKey, Refused, NotThis, UnknownVersion };

struct Opening {
    bytea* value;  // the bytes that were sealed
    Fault fault;
    const char* why;  // there are no keys
};

// The key of a record, from the ring or, where the ring does not have it, from the file as it is
// now.
Fault key_of(const Record& record, const core::Key** key, const char** why) {
    core::KeyRing* ring = config::encryption_keys(why);
    for (bool anew = false; ring != nullptr; anew = true) {
        switch (core::record_key(*ring, pg::bytes_of(record.sealed_by), pg::bytes_of(record.salt),
                                 key)) {
            case core::RecordKey::Derived:
                return Fault::None;
            case core::RecordKey::Refused:
                return Fault::Refused;
            case core::RecordKey::NoSuchId:
                break;
        }
        if (anew) return Fault::NoSuchKey;
        ring = config::encryption_keys_anew(why);
    }
    return Fault::NoKeys;
}

// As the bytes that were sealed.
Opening open_bytes(const Record& record, const ColumnType& column, const bytea* sealed) {
    Opening opening{nullptr, Fault::NotThis, nullptr};
    if (record.sealed_by == nullptr || record.salt == nullptr) return opening;
    core::SealPlace place = place_of(record, column);
    std::string_view bytes = pg::bytes_of(sealed);
    bytea* plain =
        new_bytea(bytes.size() < core::kSealOverhead ? 0 : bytes.size() - core::kSealOverhead);
    const core::Key* key = nullptr;
    opening.fault = key_of(record, &key, &opening.why);
    if (opening.fault != Fault::None) return opening;
    switch (core::open(*key, place, bytes, data_of(plain))) {
        case core::Opened::Yes:
            opening.value = plain;
            break;
        case core::Opened::Unknown:
            opening.fault = Fault::UnknownVersion;
            break;
        case core::Opened::Not:
            opening.fault = Fault::NotThis;
            break;
    }
    return opening;
}

[[noreturn]] void raise_fault(const Record& record, const ColumnType& column,
                              const Opening& opening) {
    switch (opening.fault) {
        case Fault::NoKeys:
            raise_no_keys(record.id, opening.why);
        case Fault::NoSuchKey:
            count_error(record.id);
            ereport(ERROR,
                    (errcode(kNoKey), errmsg("the encryption key of this record is not available"),
                     errdetail("The key file has no key with the id \"%s\".",
                               text_to_cstring(record.sealed_by)),
                     errhint("Ask an administrator to put the key back into the key file, and to "
                             "reload the configuration.")));
        case Fault::Refused:
            raise_not_opened(record, column.name, "its salt is damaged, or OpenSSL refused.");
        case Fault::UnknownVersion:
            raise_not_opened(record, column.name,
                             "a newer version of the extension has sealed it, or it is damaged.");
        case Fault::NotThis:
        case Fault::None:
            break;
    }
    raise_not_opened(record, column.name, "the key with this id or the row has been changed.");
}

// ---- a record ----

void drop_bytes(bytea* plain) {
    if (plain == nullptr) return;
    core::wipe(VARDATA(plain), VARSIZE(plain) - VARHDRSZ);
    pfree(plain);
}

// Opens up to `most` values that are sealed and not yet open, to see whether it can. Returns the
// first that did not open, and why.
Opening try_some(const Record& record, const KeptValues& values, int most,
                 const ColumnType** unopened) {
    Opening opening{};
    for (const KeptValue& value : values) {
        if (!value.is_unopened()) continue;
        if (opening.fault != Fault::None || most-- <= 0) break;
        opening = open_bytes(record, *value.column, *value.sealed);
        drop_bytes(opening.value);
        *unopened = value.column;
    }
    return opening;
}

constexpr int kAll = INT_MAX;

// nullptr if the current key can't be had, or is another one than this database has used under its
// id; `why` is then a sentence.
core::KeyRing* usable_keys(const char** why) {
    core::KeyRing* ring = config::encryption_keys(why);
    if (ring == nullptr) return nullptr;
    std::string_view id = core::current_key_id(*ring);
    if (store::use_of_key(id, core::key_check(*ring, id)) != store::KeyUse::Other) return ring;
    *why = psprintf(
        "The key \"%.*s\" of the key file is not the one that this database has used "
        "under that id.",
        static_cast<int>(id.size()), id.data());
    return nullptr;
}

core::KeyRing* required_keys(const store::Identity& id) {
    const char* why = nullptr;
    core::KeyRing* ring = usable_keys(&why);
    if (ring == nullptr) raise_no_keys(id, why);
    return ring;
}

void keep_first_use(core::KeyRing& ring, std::string_view id) {
    std::string_view check = core::key_check(ring, id);
    if (check.empty()) raise_not_sealed();
    if (store::use_of_key(id, check) == store::KeyUse::First) store::keep_key(id, check);
}

void take_new_key(Record* record) {
    core::Salt salt;
    if (!core::random_bytes(salt, core::kSaltBytes)) raise_not_sealed();
    core::KeyRing* ring = required_keys(record->id);
    std::string_view id = core::current_key_id(*ring);
    keep_first_use(*ring, id);
    record->sealed_by = pg::make_text(id);
    record->salt =
        pg::as_bytea(pg::make_text({reinterpret_cast<const char*>(salt), core::kSaltBytes}));
}

// Of the record, whose key is the current one.
const core::Key* key_to_seal(const Record& record) {
    const core::Key* key = nullptr;
    core::KeyRing* ring = required_keys(record.id);
    if (core::record_key(*ring, pg::bytes_of(record.sealed_by), pg::bytes_of(record.salt), &key) !=
        core::RecordKey::Derived)
        raise_not_sealed();
    return key;
}

void seal_rest(const Record& record, const KeptValues& values) {
    const core::Key* key = key_to_seal(record);
    for (const KeptValue& value : values)
        if (value.is_unsealed())
            *value.sealed = sealed_value(*key, record, *value.column, value.plain);
}

// From bytes to bytes, so that it needs no text that the encoding of this database does not have.
// All values are opened before the first is sealed. If one does not open, the record is unchanged.
Opening seal_anew(Record* record, const KeptValues& values, const ColumnType** unopened) {
    Opening opening{};
    bytea* plain[store::kKeptCount]{};
    for (std::size_t i = 0; i < values.size() && opening.fault == Fault::None; i++) {
        if (!values[i].is_unopened()) continue;
        opening = open_bytes(*record, *values[i].column, *values[i].sealed);
        plain[i] = opening.value;
        *unopened = values[i].column;
    }
    bool all_open = opening.fault == Fault::None;
    if (all_open) take_new_key(record);
    const core::Key* key = all_open ? key_to_seal(*record) : nullptr;
    bool sealed = true;
    for (std::size_t i = 0; i < values.size(); i++) {
        if (all_open) *values[i].sealed = nullptr;
        if (plain[i] == nullptr) continue;
        if (all_open) {
            bytea* bytes = sealed_bytes(*key, *record, *values[i].column, pg::bytes_of(plain[i]));
            sealed = sealed && bytes != nullptr;
            *values[i].sealed = bytes;
        }
        drop_bytes(plain[i]);
    }
    if (!sealed) raise_not_sealed();
    if (all_open) seal_rest(*record, values);
    return opening;
}

bool is_current(const core::KeyRing& ring, const Record& record) {
    return record.sealed_by != nullptr && record.salt != nullptr &&
           pg::bytes_of(record.sealed_by) == core::current_key_id(ring);
}

}  // namespace

void require_key(const store::Identity& id) {
    (void)required_keys(id);
}

text* current_key(const store::Identity& id) {
    return pg::make_text(core::current_key_id(*required_keys(id)));
}

bool is_sealed_otherwise(const Record& record) {
    return record.sealed_by != nullptr && !is_current(*required_keys(record.id), record);
}

void seal(Record* record, bool encrypt) {
    if (!encrypt && record->sealed_by == nullptr) return;
    KeptValues values = store::kept_values(record);
    if (std::all_of(values.begin(), values.end(), std::mem_fn(&KeptValue::is_null))) {
        record->sealed_by = nullptr;
        record->salt = nullptr;
    }
    if (std::none_of(values.begin(), values.end(), std::mem_fn(&KeptValue::is_unsealed))) return;
    bool anew = !is_current(*required_keys(record->id), *record);
    const ColumnType* unopened = nullptr;
    Opening opening =
        anew ? seal_anew(record, values, &unopened) : try_some(*record, values, 1, &unopened);
    if (opening.fault != Fault::None) raise_fault(*record, *unopened, opening);
    if (!anew) seal_rest(*record, values);
}

bool try_seal(Record* record, bool encrypt) {
    KeptValues values = store::kept_values(record);
    bool unsealed = std::any_of(values.begin(), values.end(), std::mem_fn(&KeptValue::is_unsealed));
    bool by_key = (encrypt || record->sealed_by != nullptr) && unsealed;
    const char* why = nullptr;
    const ColumnType* unopened = nullptr;
    if (by_key && (usable_keys(&why) == nullptr ||
                   try_some(*record, values, kAll, &unopened).fault != Fault::None)) {
        count_error(record->id);
        return false;
    }
    seal(record, encrypt);
    return true;
}

bool reseal(Record* record) {
    const ColumnType* unopened = nullptr;
    return seal_anew(record, store::kept_values(record), &unopened).fault == Fault::None;
}

void* opened_value(const Record& record, const ColumnType& column, void* plain,
                   const bytea* sealed) {
    if (plain != nullptr || sealed == nullptr) return plain;
    Opening opening = open_bytes(record, column, sealed);
    if (opening.fault != Fault::None) raise_fault(record, column, opening);
    if (column.type == BYTEAOID) return opening.value;
    text* value = text_value(opening.value);
    if (column.type == TEXTOID) return value;
    char* json = text_to_cstring(value);
    Datum parsed = DirectFunctionCall1(jsonb_in, CStringGetDatum(json));
    wipe_and_free({json, strlen(json)});
    core::wipe(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
    pfree(value);
    return DatumGetJsonbP(parsed);
}

const char* why_closed(Record* record) {
    const ColumnType* unopened = nullptr;
    Opening opening = try_some(*record, store::kept_values(record), kAll, &unopened);
    switch (opening.fault) {
        case Fault::None:
            return nullptr;
        case Fault::NoKeys:
            return opening.why;
        case Fault::NoSuchKey:
            return psprintf("The key file has no key with the id \"%s\".",
                            text_to_cstring(record->sealed_by));
        case Fault::Refused:
        case Fault::NotThis:
        case Fault::UnknownVersion:
            break;
    }
    return psprintf("Column %s of the record could not be opened with the key \"%s\".",
                    unopened->name,
                    record->sealed_by == nullptr ? "" : text_to_cstring(record->sealed_by));
}

const char* why_no_keys() {
    const char* why = nullptr;
    return usable_keys(&why) == nullptr ? why : nullptr;
}

}  // namespace idem::claim
