# What belay needs on AWS: a table for locks, a bucket for deployment state, policies and alarms (S4.13). docs/aws.md
# says how to use it, test/dynamodb_table/test_terraform_module.py checks it against what belay itself creates.
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}
