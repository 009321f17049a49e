# Locks in belay's own layout, and deployment state.
module "belay" {
  source      = "../.."
  table_name  = "deploy-locks"
  layout      = "belay"
  bucket_name = "company-belay-state"
}

output "store" {
  value = module.belay.store
}
