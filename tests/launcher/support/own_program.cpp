// dstrain with a model of the tests in place of its second one.
#include "launcher/commands/run_command.h"
#include "launcher/process/descriptor.h"
#include "tests/models/own_model.h"

int main(int argc, char** argv) {
  dstrain::open_closed_streams();
  return dstrain::run(std::vector<std::string>(argv + 1, argv + argc), dstrain::own_models());
}
