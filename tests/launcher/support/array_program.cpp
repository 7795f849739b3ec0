// dstrain with one model, which reads arrays.
#include "launcher/commands/run_command.h"
#include "launcher/process/descriptor.h"
#include "runtime/config/keys/table/model_registry.h"
#include "tests/support/array_model.h"

int main(int argc, char** argv) {
  dstrain::open_closed_streams();
  static const dstrain::ModelRegistry models({&dstrain::array_family()});
  return dstrain::run(std::vector<std::string>(argv + 1, argv + argc), models);
}
