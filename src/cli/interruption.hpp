#pragma once

namespace tsdiag::cli {

/// From now on, SIGINT, SIGTERM and SIGHUP remove unfinished output and exit with 130.
/// Must be called before any thread is started.
void watch_interruptions();

/// The work is done or has failed, and that was said: from now on signals do nothing, so that the
/// launcher that ends the other ranks changes neither words nor exit code.
void ignore_interruptions();

}  // namespace tsdiag::cli
