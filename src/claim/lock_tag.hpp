// Advisory lock tags of our own classes. Users' locks have 1 and 2 in the fourth field.
#pragma once

#include "store/record.hpp"

namespace idem::claim {

inline constexpr std::uint16_t kClaimClass = 18756;
inline constexpr std::uint16_t kLivenessClass = 18757;

inline LOCKTAG lock_tag(const store::Identity& id, std::uint16_t lock_class) {
    std::uint64_t hash = store::identity_hash(id);
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, static_cast<uint32>(hash >> 32),
                         static_cast<uint32>(hash), lock_class);
    return tag;
}

}  // namespace idem::claim
