#include "runtime/plan/settings/open_settings.h"

#include <catch2/catch.hpp>

#include "runtime/plan/settings/fit.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

// A job whose logits and hidden values are both large, that leaves everything open.
Job open_job() {
  Job job;
  job.model = GptLite{
      .n_layer = 2, .n_embd = 32, .n_head = 2, .block_size = 1024, .gelu = true, .vocab_size = 400};
  job.batch = {.train_batch = 1, .micro_batch = 1, .accumulation = 1};
  job.loss_chunks = job.mlp_chunks = 0;
  return job;
}

int64_t bytes_of(const Job& job) {
  return planned_bytes(job, fake_inputs());
}

std::optional<Job> fitted(const Job& job, int64_t bytes) {
  return made_to_fit(job, [&](const Job& changed) { return bytes_of(changed) <= bytes; });
}

Job with(Job job, int64_t loss, int64_t mlp) {
  job.loss_chunks = loss;
  job.mlp_chunks = mlp;
  return job;
}

}  // namespace

TEST_CASE("the fewest pieces that fit are taken, of the loss before MLPs") {
  const Job job = open_job();
  const int64_t losses = bytes_of(with(job, 2, 0)), mlps = bytes_of(with(job, 2, 2));
  REQUIRE(losses < bytes_of(job));
  REQUIRE(mlps < bytes_of(with(job, 16, 0)));
  const std::optional<Job> free = fitted(job, losses);
  REQUIRE(free);
  CHECK(free->loss_chunks == 2);
  CHECK(free->mlp_chunks == 0);
  const std::vector<SettledSetting> settled = settled_between(job, *free);
  REQUIRE(settled.size() == 1);
  CHECK(settled[0].key == "dstrain.loss_chunks");
  CHECK(settled[0].value == "2");
  CHECK(settled[0].why == "the memory does not suffice for the logits of all rows");

  const std::optional<Job> both = fitted(job, mlps);
  REQUIRE(both);
  CHECK(both->loss_chunks == 2);
  CHECK(both->mlp_chunks == 2);
  CHECK(settled_between(job, *both).size() == 2);
  const int64_t least = bytes_of(with_most_settled(job));
  REQUIRE(least < mlps);
  REQUIRE(fitted(job, least));
  CHECK(fitted(job, least)->mlp_chunks > 2);
  CHECK_FALSE(fitted(job, least - 1));
}

TEST_CASE("what a configuration says stays") {
  const Job job = open_job();
  const int64_t small = bytes_of(with(job, 2, 2));
  CHECK_FALSE(fitted(with(job, 1, 1), small));
  const std::optional<Job> losses = fitted(with(job, 0, 1), bytes_of(with(job, 4, 1)));
  REQUIRE(losses);
  CHECK(losses->mlp_chunks == 1);
  CHECK(losses->loss_chunks <= 4);
}

TEST_CASE("ranks that divide layers gather rows again, beside pieces") {
  Job job = open_job();
  job.ranks = job.tensor_ranks = 2;
  Job again = job;
  again.gather_again = GatherAgain::on;
  const std::optional<Job> gathers = fitted(with(job, 1, 1), bytes_of(with(again, 1, 1)));
  REQUIRE(gathers);
  CHECK(gathers->gather_again == GatherAgain::on);
  const std::optional<Job> all = fitted(job, bytes_of(with_most_settled(job)));
  REQUIRE(all);
  CHECK(all->gather_again == GatherAgain::on);
  CHECK(all->mlp_chunks > 1);
}
