#include "runtime/config/axes_text.h"

#include <catch2/catch.hpp>

using namespace dstrain;

TEST_CASE("axes text: the axes with several ranks, from the outermost") {
  CHECK(axes_text({2, 3, 4, 5}) ==
        "2 pipeline stages x 3 data-parallel ranks x 4 sequence ranks x 5 tensor ranks");
  CHECK(axes_text({1, 2, 1, 2}) == "2 data-parallel ranks x 2 tensor ranks");
  CHECK(axes_text({}).empty());
}

TEST_CASE("axes text: the ranks of a job along its axes") {
  Job job;
  job.ranks = 24;
  job.pipeline.stages = 2;
  job.sequence_ranks = 3;
  job.tensor_ranks = 2;
  CHECK(job.data_ranks() == 2);
  CHECK(job.state_ranks() == 6);
  CHECK(axes_text(axis_ranks(job)) ==
        "2 pipeline stages x 2 data-parallel ranks x 3 sequence ranks x 2 tensor ranks");
  CHECK(has_model_axes(axis_ranks(job)));
  job = {};
  job.ranks = 4;
  CHECK_FALSE(has_model_axes(axis_ranks(job)));
  job.tensor_ranks = 4;
  CHECK(has_model_axes(axis_ranks(job)));
}
