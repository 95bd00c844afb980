// A violation that tests/include_rules.cmake must detect; never compiled.
#include <boost/math/distributions.hpp>

#include "../src/core/json.hpp"
#include "elsewhere.hpp"
#include "tsdiag/model.hpp"
#include "tsdiag/probe.hpp"
