#include "core/fingerprint.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>

#include "core/canonical.hpp"
#include "core/exclude.hpp"
#include "core/json.hpp"

namespace idem::core {
namespace {

constexpr std::string_view kHeading = "idempotency fingerprint 1\n";

using Field = std::optional<std::string_view>;

// SHA-256 in progress. The first failure sticks, so that only finish() needs to be asked.
class Sha256 {
  public:
    Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
        good_ =
            context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
    }

    void add(std::string_view bytes) {
        good_ = good_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
    }

    bool finish(unsigned char (&digest)[kFingerprintBytes]) {
        return good_ && EVP_DigestFinal_ex(context_.get(), digest, nullptr) == 1;
    }

  private:
    std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
    bool good_;
};

// The length comes first, so that no byte can move from one field into its neighbour unseen.
void add_field(Sha256& hash, const Field& field) {
    if (!field) return hash.add("-\n");
    char length[24];
    const char* end = std::to_chars(length, length + sizeof length, field->size()).ptr;
    hash.add({length, static_cast<std::size_t>(end - length)});
    hash.add(":");
    hash.add(*field);
    hash.add("\n");
}

// The digest of the framed fields into `result`.
FingerprintFault digest_fields(const Field& method, const Field& path, const Field& request,
                               FingerprintResult& result) {
    Sha256 hash;
    hash.add(kHeading);
    add_field(hash, method);
    add_field(hash, path);
    add_field(hash, request);
    return hash.finish(result.digest) ? FingerprintFault::None : FingerprintFault::DigestFailed;
}

// The tree lives only here: a large request should not occupy memory twice while it is hashed.
FingerprintFault canonical_request(const FingerprintInput& input, std::string& out) {
    JsonValue value;
    const FingerprintFault fault = parse_json(*input.request, input.interrupted, value);
    if (fault != FingerprintFault::None) return fault;
    remove_excluded(value, input.exclude, input.exclude_count);
    return append_canonical(value, out);
}

}  // namespace

FingerprintResult fingerprint(const FingerprintInput& input) noexcept {
    FingerprintResult result{};
    const std::string_view* end = input.exclude + input.exclude_count;
    const std::string_view* bad = std::find_if_not(input.exclude, end, valid_exclude);
    if (bad != end) {
        result.fault = FingerprintFault::BadExclude;
        result.bad_exclude = static_cast<std::size_t>(bad - input.exclude);
        return result;
    }
    std::string canonical;
    if (input.request) result.fault = canonical_request(input, canonical);
    if (result.fault != FingerprintFault::None) return result;
    const Field request = input.request ? Field(canonical) : std::nullopt;
    result.fault = digest_fields(input.method, input.path, request, result);
    return result;
}

}  // namespace idem::core
