#include "runtime/comm/mpi/mpi_session.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("an MPI library that takes calls from one thread at a time is refused") {
  CHECK_NOTHROW(require_threads(MPI_THREAD_MULTIPLE));
  CHECK_THROWS_AS(require_threads(MPI_THREAD_SERIALIZED), UserError);
  CHECK_THROWS_WITH(require_threads(MPI_THREAD_SINGLE),
                    Catch::StartsWith("this MPI library gives MPI_THREAD_SINGLE where dstrain "
                                      "needs MPI_THREAD_MULTIPLE: "));
}

}  // namespace
}  // namespace dstrain
