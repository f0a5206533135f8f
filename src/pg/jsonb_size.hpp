// How long a jsonb is as text.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// The bytes of its text, in the server's encoding, without making it: a number that takes a few
// bytes in a jsonb may have a hundred thousand digits. Can be cancelled.
std::int64_t jsonb_text_size(Jsonb* value);

}  // namespace idem::pg
