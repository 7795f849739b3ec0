// How a rank waits for MPI, which cannot wake it when a message arrives: it looks, and sleeps between two looks. It
// never yields its core: a thread that yields goes behind all others, so that beside a busy process each yield costs a
// whole time slice of that process, and one that yields again and again may get no time at all.
#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <chrono>
#include <string>

namespace dstrain {

// Sleeps for 5 to 500 us, longer with every call, at most `longest`. `earlier`: how many calls this wait has had
// already.
void sleep_for_messages(int earlier, std::chrono::microseconds longest);

// Blocks until `request` is complete. MPI's own waits keep a core busy. Throws RunError if MPI fails in it; `what`
// names the call that made the request.
void wait_for(MPI_Request request, const std::string& what);

// Lets sleeps of this thread, and of those that it starts from now on, end within microseconds of their time. The
// kernel's default adds 50 us, more than most messages take.
void sleep_precisely();

}  // namespace dstrain
