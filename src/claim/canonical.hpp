// The canonical form of a request, by walking it as the server keeps it.
#pragma once

#include "core/fingerprint.hpp"

#include "pg/pg.hpp"

namespace idem::claim {

// In UTF-8, in memory that belongs to the current context. What `excludes` names is left out.
// Refuses what is nested deeper than kMaxJsonDepth or longer than kMaxRequestBytes.
std::string_view canonical_form(Jsonb* request, const core::Excludes& excludes);

}  // namespace idem::claim
