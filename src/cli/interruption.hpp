#pragma once

namespace tsdiag::cli {

/// From now on, SIGINT, SIGTERM and SIGHUP remove unfinished output and exit with 130.
/// Must be called before any thread is started.
void watch_interruptions();

/// From now on the first such signal only sets `is_interrupted`, so that the command can keep what
/// it has; the second one ends the program as before.
void defer_interruption();
bool is_interrupted();

/// The work is done or has failed: from now on such signals change neither words nor exit code.
/// Does not return where one has come before, which says so and ends the program.
void ignore_interruptions();

}  // namespace tsdiag::cli
