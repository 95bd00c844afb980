#pragma once
#include <CLI/CLI.hpp>

#include "tsdiag/json.hpp"

namespace tsdiag::cli {

/// What `tsdiag COMMAND --help --json` tells of a command: `name`, `about` and `options`, each with
/// `name` and `names` as they are typed, `group`, `type` (its metavariable; "flag": it takes no
/// value), `default` (a text or null), `required`, `repeatable`, `help`, and `changes_numbers`:
/// whether a number of a table depends on it, null where that is not said.  `runs_models`: the
/// options are those of `RunOptions`, whose list of settings says so.
Json help_json(const CLI::App& command, bool runs_models);

}  // namespace tsdiag::cli
