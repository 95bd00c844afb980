#pragma once
#include <functional>
#include <string>

#include "tsdiag/units.hpp"

namespace tsdiag {

/// The source of a record, for messages.
constexpr const char* kept_units = "a finished unit";

/// Makes and keeps the records of those units of the stage that fall to this process: by all
/// threads at once, each one unit, or by the calling thread.  The exception of the first unit that
/// failed is rethrown.
void hand_out(Units& units, Index count, bool side_by_side,
              const std::function<std::string(Index)>& make,
              const std::function<void(double)>& tell);

}  // namespace tsdiag
