#pragma once

namespace tsdiag::cli {

/// From now on, SIGINT, SIGTERM and SIGHUP remove unfinished output and exit with 130.
/// Must be called before any thread is started.
void watch_interruptions();

}  // namespace tsdiag::cli
