#include "core/fingerprint.hpp"

#include <openssl/evp.h>

#include <charconv>
#include <memory>

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

}  // namespace

bool fingerprint(const FingerprintInput& input,
                 unsigned char (&digest)[kFingerprintBytes]) noexcept {
    Sha256 hash;
    hash.add(kHeading);
    add_field(hash, input.method);
    add_field(hash, input.path);
    add_field(hash, input.request);
    return hash.finish(digest);
}

}  // namespace idem::core
