# Document 001: locks of resources.
module "belay" {
  source     = "../.."
  table_name = "resource-locks"
  layout     = "resource"
}

output "store" {
  value = module.belay.store
}
