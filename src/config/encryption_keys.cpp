// Each backend reads the file by itself, as it reads postgresql.conf. So no memory is shared, and
// the postmaster and backends that meet no encrypted record have no keys. The file's owner and
// permissions must be those that the server requires of ssl_key_file
// (check_ssl_key_file_permissions).

#include <cerrno>
#include <climits>
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/encryption_keys.hpp"

#include "config/settings.hpp"

namespace idem::config {

namespace {

struct Keys {
    core::KeyRing* ring;
    TimestampTz reloaded;  // the reload after which they were read
};
Keys keys;

constexpr std::size_t kRoom = core::kLargestKeyFile + 1;

// nullptr: nothing.
const char* unfit(const struct stat& file) {
    if (!S_ISREG(file.st_mode)) return "The key file is not a regular file.";
    bool own = file.st_uid == geteuid();
    if (!own && file.st_uid != 0)
        return "The key file must be owned by the server's user or by root.";
    if (file.st_mode & (own ? S_IRWXG | S_IRWXO : S_IWGRP | S_IXGRP | S_IRWXO))
        return "The key file has group or world access. Its mode must be 0600 or less, or 0640 or "
               "less if root owns it.";
    return nullptr;
}

// Fills `text`, which has kRoom bytes. Returns the fault of the file, or nullptr.
const char* read_all(int file, char* text, std::size_t* length) {
    struct stat status;
    if (fstat(file, &status) != 0) return psprintf("The key file cannot be examined: %m.");
    if (const char* why = unfit(status)) return why;
    ssize_t count;
    for (*length = 0; (count = read(file, text + *length, kRoom - *length)) != 0;
         *length += static_cast<std::size_t>(count))
        if (count < 0) return psprintf("The key file cannot be read: %m.");
    return *length == kRoom ? "The key file has more than 16384 bytes." : nullptr;
}

// A base backup copies what lies there, wherever a symbolic link outside leads to it from.
bool lies_in_data_directory(const char* path) {
    char real[PATH_MAX];
    char data[PATH_MAX];
    return realpath(path, real) != nullptr && realpath(DataDir, data) != nullptr &&
           path_is_prefix_of_path(data, real);
}

// Bypasses the standard library's buffers, which would not be wiped.
const char* read_file(const char* path, char* text, std::size_t* length) {
    int file = OpenTransientFile(path, O_RDONLY | PG_BINARY | O_NONBLOCK);
    if (file < 0) return psprintf("The key file cannot be opened: %m.");
    const char* why = lies_in_data_directory(path)
                          ? "A symbolic link in its path leads into the data directory."
                          : read_all(file, text, length);
    (void)CloseTransientFile(file);
    return why;
}

const char* sentence_of(const core::KeyFault& fault) {
    if (fault.line == 0) return psprintf("The key file cannot be used. %s", fault.detail);
    return psprintf("Line %zu of the key file cannot be used. %s", fault.line, fault.detail);
}

core::KeyRing* read_keys(const char** why) {
    if (*encryption_key_file == '\0') {
        *why = "The setting idempotency.encryption_key_file is empty.";
        return nullptr;
    }
    auto* text = static_cast<char*>(palloc(kRoom));
    std::size_t length = 0;
    core::KeyRing* ring = nullptr;
    *why = read_file(encryption_key_file, text, &length);
    if (*why == nullptr) {
        core::KeyFault fault;
        ring = core::read_key_ring({text, length}, &fault);
        if (ring == nullptr) *why = sentence_of(fault);
    }
    core::wipe(text, kRoom);
    pfree(text);
    return ring;
}

}  // namespace

// A file that could not be read is tried again at each call.
core::KeyRing* encryption_keys(const char** why) {
    if (keys.ring != nullptr && keys.reloaded == PgReloadTime) return keys.ring;
    return encryption_keys_anew(why);
}

core::KeyRing* encryption_keys_anew(const char** why) {
    core::wipe_key_ring(keys.ring);
    keys.ring = nullptr;
    keys.ring = read_keys(why);
    keys.reloaded = PgReloadTime;
    return keys.ring;
}

}  // namespace idem::config
