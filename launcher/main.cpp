#include "launcher/commands/run_command.h"
#include "launcher/process/descriptor.h"
#include "models/registry.h"

int main(int argc, char** argv) {
  dstrain::open_closed_streams();
  return dstrain::run(std::vector<std::string>(argv + 1, argv + argc), dstrain::model_registry());
}
