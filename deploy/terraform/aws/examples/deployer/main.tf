# Document 004: stacks, with their deployment state in a bucket.
module "belay" {
  source       = "../.."
  table_name   = "deployer-locks"
  layout       = "deployer"
  bucket_name  = "company-deployer-state"
  state_prefix = "deployer"
}

output "store" {
  value = module.belay.store
}
