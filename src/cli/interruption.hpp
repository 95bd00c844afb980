#pragma once

namespace tsdiag::cli {

/// SIGINT, SIGTERM and SIGHUP from now on remove what is unfinished and end the program with 130.
/// To be called before any thread is started.
void watch_interruptions();

}  // namespace tsdiag::cli
