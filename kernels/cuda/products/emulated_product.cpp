// Products on the emulated device: the tiled product, for every dtype and size.
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/tiled_product.cuh"

namespace dstrain::emulated {
namespace {

class TiledProduct final : public Kernel {
 public:
  TiledProduct(const Product& product, const LaunchContext& context)
      : product_(product), context_(context) {}
  void run(const KernelCall& call) const override {
    launch_tiled_product(product_, call, context_);
  }

 private:
  const Product product_;
  const LaunchContext context_;
};

}  // namespace

std::shared_ptr<ProductState> make_product_state() {
  return nullptr;
}

int64_t product_workspace_bytes(const KernelSpec&) {
  return 0;
}

std::unique_ptr<Kernel> make_product(const KernelSpec& spec, const LaunchContext& context) {
  return std::make_unique<TiledProduct>(product_of(spec), context);
}

}  // namespace dstrain::emulated
