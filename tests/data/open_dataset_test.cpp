// Errors of opening data, and their messages.
#include "tests/data/dataset_fixture.h"

namespace dstrain {
namespace {

using Catch::Contains;

TEST_CASE("no path, a missing file, a directory and an empty file are told apart") {
  TempDir dir;
  CHECK_THAT(open_error(text_job("", 4)), Contains("--data") && Contains("dstrain.data.path"));
  CHECK_THAT(open_error(text_job(dir / "none.txt", 4)),
             Contains("none.txt") && Contains("No such file") && Contains("--data"));
  CHECK_THAT(open_error(text_job(dir.path(), 4)), Contains("is a directory"));
  CHECK_THAT(open_error(text_job(dir.write("empty.txt", ""), 4)), Contains("empty.txt is empty"));
  CHECK_THAT(open_error(text_job("/dev/null", 4)), Contains("is a device"));
}

TEST_CASE("data shorter than one sample names what was found and what is needed") {
  TempDir dir;
  const std::string path = dir.write("t.txt", "abcdefghij");
  CHECK_THAT(open_error(text_job(path, 10)), Contains("10 characters") &&
                                                 Contains("training part 10 ") &&
                                                 Contains("block_size 10 needs 11"));
  CHECK(open_dataset(text_job(path, 9))->samples(Split::train) == 1);
  CHECK_THAT(open_error(text_job(dir.write("one.txt", "a"), 1)), Contains("needs 2"));
}

TEST_CASE("a validation part too short for a sample is an error only where it is used") {
  TempDir dir;
  Job job = text_job(dir.write("t.txt", std::string(40, 'a')), 4);
  job.data.val_fraction = 0.1;
  CHECK(open_dataset(job)->samples(Split::validation) == 0);
  job.eval_interval = 5;
  CHECK_THAT(open_error(job), Contains("validation part 4 ") && Contains("val_fraction 0.1") &&
                                  Contains("needs 5") && Contains("eval_interval 0"));
  job.data.val_fraction = 0.125;
  CHECK(open_dataset(job)->samples(Split::validation) == 1);
}

TEST_CASE("a model vocabulary smaller than the data's is an error, a larger one is not") {
  TempDir dir;
  Job job = text_job(dir.write("t.txt", "abcdefgh"), 4);
  job.model.set("vocab_size", 7);
  CHECK_THAT(open_error(job), Contains("vocab_size is 7") && Contains("needs 8"));
  job.model.set("vocab_size", 8);
  CHECK(open_error(job) == "no error");
  job.model.set("vocab_size", 64);
  CHECK(open_error(job) == "no error");
  job.data.format = DataFormat::bytes;
  CHECK_THAT(open_error(job), Contains("needs 256"));
}

}  // namespace
}  // namespace dstrain
