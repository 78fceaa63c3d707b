BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0005');
CREATE TABLE "attempts" (
	job_id VARCHAR(40) NOT NULL, 
	attempt INTEGER NOT NULL, 
	uid VARCHAR(64) NOT NULL, 
	submitted_at DOUBLE NOT NULL, 
	started_at DOUBLE, 
	ended_at DOUBLE, 
	outcome VARCHAR(16), 
	reason VARCHAR(64), 
	message TEXT, 
	retries INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_attempts PRIMARY KEY (job_id, attempt), 
	CONSTRAINT fk_attempts_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "attempts" VALUES('pair',1,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1795321925.3316908,1795321925.0,NULL,NULL,NULL,NULL,0);
INSERT INTO "attempts" VALUES('succeeded',1,'df1025ab-e995-4d58-bee1-b4a4a5acbb56',1795321942.3701744,1795321942.2223873,1795321945.1029725,'SUCCESS','completed',NULL,0);
INSERT INTO "attempts" VALUES('failed',1,'d1f090b9-cb13-403c-93a5-6ae3c1fe219c',1795321942.5226336,1795321944.0,1795321944.4567294,'FAILURE','exit_code','job 0 ended with exit code 3',0);
INSERT INTO "attempts" VALUES('expired',1,'a0afd769-ddb0-4ba0-ab9f-886fa9a27c9c',1795321942.6325688,1795321943.0,1795321944.1734502,'EXPIRED','expired','its time is over',0);
INSERT INTO "attempts" VALUES('unfunded',1,'b6cb0b97-4145-47c7-90a8-9a065edce6f2',1795321942.7962532,1795321943.0,1795321943.7231941,'FAILURE','out_of_funds','there are no funds for it any more',0);
INSERT INTO "attempts" VALUES('released',1,'dadc64af-40a3-4d08-b228-bfff38adac1d',1795321942.9271467,1795321943.0,1795321943.729586,'SUCCESS','asked','ended as asked',0);
INSERT INTO "attempts" VALUES('web',1,'954025b5-e34f-40b6-a6be-78fc4e366855',1795321945.2759628,1795321945.2263565,NULL,NULL,NULL,NULL,0);
INSERT INTO "attempts" VALUES('tasks',1,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1795321945.6712835,1795321946.0,NULL,NULL,NULL,NULL,0);
INSERT INTO "attempts" VALUES('resumed',1,'caa67fb1-9ad5-436c-a6fc-c4026264afcd',1795321945.7752783,1795321947.0,1795321952.725118,'SUSPENDED','resumed','resumed, and submitted again',0);
INSERT INTO "attempts" VALUES('suspended',1,'c5f23cef-2019-4f90-93f6-8b9587dba4d9',1795321945.857124,1795321948.0,NULL,NULL,NULL,NULL,0);
INSERT INTO "attempts" VALUES('resuming',1,'f0aeabb6-c7b3-46a3-925a-815357035d77',1795321945.8865352,1795321946.0,1795321967.2032645,'SUSPENDED','resumed','resumed, and submitted again',0);
INSERT INTO "attempts" VALUES('caller',1,'728e3789-bee2-4d78-8b7c-e3c560c0bbbe',1795321946.4193728,1795321947.0,NULL,NULL,NULL,NULL,0);
INSERT INTO "attempts" VALUES('resumed',2,'e3095306-0d14-4fb5-b66d-2726427a095c',1795321952.8463857,1795321954.0,NULL,NULL,NULL,NULL,0);
INSERT INTO "attempts" VALUES('queued',1,'ac729ff4-dc53-433b-8f82-489ed957f4e6',1795321954.8882012,NULL,NULL,NULL,NULL,NULL,0);
INSERT INTO "attempts" VALUES('restarting',1,'a5606c94-7ba2-4e2c-b707-26718c43d735',1795321955.7706094,1795321958.0,NULL,NULL,NULL,NULL,0);
INSERT INTO "attempts" VALUES('evicted',1,'2b3656e1-9a21-4ab7-8381-6792557dd54f',1795321955.9182158,1795321960.0,1795321966.7823672,'EVICTED','evicted','job 0 was evicted: the node was low on disk; submitted again',0);
INSERT INTO "attempts" VALUES('between-start',1,'be9c98af-6a0b-423b-88f4-1336275e86d9',1795321955.949949,1795321963.0,NULL,NULL,NULL,NULL,0);
INSERT INTO "attempts" VALUES('between-complete',1,'87eeea75-4a99-4c5d-8b64-1b8026b6f619',1795321956.1774135,1795321960.0,1795321966.5372539,'SUCCESS','asked','ended as asked',0);
INSERT INTO "attempts" VALUES('suspending',1,'6f11d455-3d74-4b48-a697-8c52ac938c7b',1795321956.346322,1795321963.0,NULL,NULL,NULL,NULL,0);
INSERT INTO "attempts" VALUES('canceling',1,'8d936c11-3a44-43b8-b4b5-1fdab551712d',1795321956.681745,1795321959.0,1795321967.8309698,'SUCCESS','asked','ended as asked',0);
INSERT INTO "attempts" VALUES('expiring',1,'0ade9590-2704-4afb-89cb-903bd1bc7206',1795321957.0493598,1795321958.0,1795321970.6294842,'EXPIRED','expired','its time is over',0);
CREATE TABLE companions (
	job_id VARCHAR(40) NOT NULL, 
	kind VARCHAR(63) NOT NULL, 
	namespace VARCHAR(63) NOT NULL, 
	name VARCHAR(253) NOT NULL, 
	uid VARCHAR(64) NOT NULL, 
	owner_uid VARCHAR(64), address VARCHAR(64), basis VARCHAR(64), lasting BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_companions PRIMARY KEY (job_id, kind, namespace, name), 
	CONSTRAINT fk_companions_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "companions" VALUES('pair','ConfigMap','jobs','j-pair.ranks','82bc4a8e-f689-41e4-ae26-03bc1234c894','5c3a2168-bc9d-4ba4-bd1a-031003c127d1',NULL,NULL,0);
INSERT INTO "companions" VALUES('pair','NetworkPolicy','jobs','j-pair.network','90ec8435-940f-42e1-b1fa-d8960ceefc51','5c3a2168-bc9d-4ba4-bd1a-031003c127d1',NULL,'-',0);
INSERT INTO "companions" VALUES('pair','ConfigMap','jobs','j-pair.cost-centre','544423f2-c2e9-42af-ad52-8baf0007a2ba','5c3a2168-bc9d-4ba4-bd1a-031003c127d1',NULL,NULL,0);
INSERT INTO "companions" VALUES('pair','NetworkPolicy','jobs','j-pair.gateway','764e9d5a-2c32-46f5-96ee-6fae907f7e88','5c3a2168-bc9d-4ba4-bd1a-031003c127d1',NULL,NULL,0);
INSERT INTO "companions" VALUES('web','Secret','jobs','j-web.parameters','8718931d-5915-4e7a-96ac-f828339d2610','954025b5-e34f-40b6-a6be-78fc4e366855',NULL,NULL,0);
INSERT INTO "companions" VALUES('web','ConfigMap','jobs','j-web.ranks','7dc9a2f0-fdf5-43bb-8bd7-73eb50ab460c','954025b5-e34f-40b6-a6be-78fc4e366855',NULL,NULL,0);
INSERT INTO "companions" VALUES('web','NetworkPolicy','jobs','j-web.network','08c067de-7c3a-4c95-8fb4-1642a88c01a5','954025b5-e34f-40b6-a6be-78fc4e366855',NULL,'b8aee848fd8070c8b51a7d3ea1eeb844',0);
INSERT INTO "companions" VALUES('web','ConfigMap','jobs','j-web.cost-centre','502aee95-b456-46ba-833d-69547c921b01','954025b5-e34f-40b6-a6be-78fc4e366855',NULL,NULL,0);
INSERT INTO "companions" VALUES('web','NetworkPolicy','jobs','j-web.gateway','b6597ed3-9b98-4036-816a-aeca0b21a05a','954025b5-e34f-40b6-a6be-78fc4e366855',NULL,NULL,0);
INSERT INTO "companions" VALUES('caller','ConfigMap','jobs','j-caller.ranks','900055bf-fa0e-4dc9-befd-10b8725f0631','728e3789-bee2-4d78-8b7c-e3c560c0bbbe',NULL,NULL,0);
INSERT INTO "companions" VALUES('caller','NetworkPolicy','jobs','j-caller.network','55b0b89d-90e1-498b-b895-aa61bc5e8369','728e3789-bee2-4d78-8b7c-e3c560c0bbbe',NULL,'-',0);
INSERT INTO "companions" VALUES('tasks','ConfigMap','jobs','j-tasks.ranks','755f9443-5690-48f5-b1da-ad88578c0420','4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',NULL,NULL,0);
INSERT INTO "companions" VALUES('tasks','NetworkPolicy','jobs','j-tasks.network','16f703a4-5803-49dd-8458-bc6225c7cab7','4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',NULL,'-',0);
INSERT INTO "companions" VALUES('tasks','ConfigMap','jobs','j-tasks.cost-centre','e5e9f8b5-2cd9-4adc-b853-dd62b20fc61f','4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',NULL,NULL,0);
INSERT INTO "companions" VALUES('tasks','NetworkPolicy','jobs','j-tasks.gateway','9be0ad61-dd8d-412d-80fb-28fea71aa0d8','4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',NULL,NULL,0);
INSERT INTO "companions" VALUES('suspended','ConfigMap','jobs','j-suspended.ranks','6b5b55e8-bf69-4105-bee4-73898c36f95f','c5f23cef-2019-4f90-93f6-8b9587dba4d9',NULL,NULL,0);
INSERT INTO "companions" VALUES('suspended','NetworkPolicy','jobs','j-suspended.network','c5c454d5-5a7b-409e-9e10-48d4d0abfe45','c5f23cef-2019-4f90-93f6-8b9587dba4d9',NULL,'-',0);
INSERT INTO "companions" VALUES('suspended','ConfigMap','jobs','j-suspended.cost-centre','c2368958-486c-41ba-98d3-ea8b0c0db524','c5f23cef-2019-4f90-93f6-8b9587dba4d9',NULL,NULL,0);
INSERT INTO "companions" VALUES('suspended','NetworkPolicy','jobs','j-suspended.gateway','4e4db2ba-585e-4f8d-8182-b1d5f50c6ba3','c5f23cef-2019-4f90-93f6-8b9587dba4d9',NULL,NULL,0);
INSERT INTO "companions" VALUES('web','Service','jobs','peer-web','6f35f0a9-64d2-4b0f-b70d-6fd931cadf45',NULL,'127.143.144.1',NULL,1);
INSERT INTO "companions" VALUES('caller','ConfigMap','jobs','j-caller.cost-centre','b24ed661-ab1e-44f5-95d9-431601a15f61','728e3789-bee2-4d78-8b7c-e3c560c0bbbe',NULL,NULL,0);
INSERT INTO "companions" VALUES('caller','NetworkPolicy','jobs','j-caller.gateway','685326d9-1465-4641-b445-510e6940ec77','728e3789-bee2-4d78-8b7c-e3c560c0bbbe',NULL,NULL,0);
INSERT INTO "companions" VALUES('resumed','ConfigMap','jobs','j-resumed.ranks','c479e1b4-3ac7-4d7a-87c2-8319169aa1da','e3095306-0d14-4fb5-b66d-2726427a095c',NULL,NULL,0);
INSERT INTO "companions" VALUES('resumed','NetworkPolicy','jobs','j-resumed.network','89140ff4-b805-4814-b3f2-bb61dd984b09','e3095306-0d14-4fb5-b66d-2726427a095c',NULL,'-',0);
INSERT INTO "companions" VALUES('resumed','ConfigMap','jobs','j-resumed.cost-centre','5e1c874e-07f1-437b-b513-3e04f06acbe0','e3095306-0d14-4fb5-b66d-2726427a095c',NULL,NULL,0);
INSERT INTO "companions" VALUES('resumed','NetworkPolicy','jobs','j-resumed.gateway','0403cfb6-a1d1-47b0-85b5-d05e34679ae1','e3095306-0d14-4fb5-b66d-2726427a095c',NULL,NULL,0);
INSERT INTO "companions" VALUES('queued','ConfigMap','jobs','j-queued.ranks','d4def00a-6e3e-43a9-ab11-29e0c77b85c9','ac729ff4-dc53-433b-8f82-489ed957f4e6',NULL,NULL,0);
INSERT INTO "companions" VALUES('queued','NetworkPolicy','jobs','j-queued.network','5caafdd5-16a2-4021-9c6d-18c37df37272','ac729ff4-dc53-433b-8f82-489ed957f4e6',NULL,'-',0);
INSERT INTO "companions" VALUES('queued','ConfigMap','jobs','j-queued.cost-centre','dab5ba41-cb79-45fb-8a74-3a710bdc2519','ac729ff4-dc53-433b-8f82-489ed957f4e6',NULL,NULL,0);
INSERT INTO "companions" VALUES('queued','NetworkPolicy','jobs','j-queued.gateway','b8d9e4af-2bad-41a8-af09-c5528e0e1b2d','ac729ff4-dc53-433b-8f82-489ed957f4e6',NULL,NULL,0);
INSERT INTO "companions" VALUES('prepared','Secret','jobs','j-prepared.parameters','',NULL,NULL,NULL,0);
INSERT INTO "companions" VALUES('prepared','ConfigMap','jobs','j-prepared.ranks','',NULL,NULL,NULL,0);
INSERT INTO "companions" VALUES('prepared','NetworkPolicy','jobs','j-prepared.network','',NULL,NULL,NULL,0);
INSERT INTO "companions" VALUES('restarting','ConfigMap','jobs','j-restarting.ranks','dee34722-5a73-4625-b10d-c41ac4e55aa3','a5606c94-7ba2-4e2c-b707-26718c43d735',NULL,NULL,0);
INSERT INTO "companions" VALUES('restarting','NetworkPolicy','jobs','j-restarting.network','64640dd2-4f7e-4533-9bf6-e9fa0d8f5356','a5606c94-7ba2-4e2c-b707-26718c43d735',NULL,'-',0);
INSERT INTO "companions" VALUES('between-start','ConfigMap','jobs','j-between-start.ranks','c15fde2e-743e-4a46-a120-7b13e6881324','be9c98af-6a0b-423b-88f4-1336275e86d9',NULL,NULL,0);
INSERT INTO "companions" VALUES('between-start','NetworkPolicy','jobs','j-between-start.network','4932c7f0-ea0a-48f3-af6c-ebef3abf3d3c','be9c98af-6a0b-423b-88f4-1336275e86d9',NULL,'-',0);
INSERT INTO "companions" VALUES('restarting','ConfigMap','jobs','j-restarting.cost-centre','d0eb2509-ba7f-4410-8559-1081c2b63ed0','a5606c94-7ba2-4e2c-b707-26718c43d735',NULL,NULL,0);
INSERT INTO "companions" VALUES('restarting','NetworkPolicy','jobs','j-restarting.gateway','0bd4a9f2-934d-4b47-8db4-389712eeaca2','a5606c94-7ba2-4e2c-b707-26718c43d735',NULL,NULL,0);
INSERT INTO "companions" VALUES('between-complete','ConfigMap','jobs','j-between-complete.ranks','13b86249-1533-4e19-860e-3af2d567a9c6','87eeea75-4a99-4c5d-8b64-1b8026b6f619',NULL,NULL,0);
INSERT INTO "companions" VALUES('between-complete','NetworkPolicy','jobs','j-between-complete.network','258726b8-f2ce-4b36-83bc-64eefc8193c9','87eeea75-4a99-4c5d-8b64-1b8026b6f619',NULL,'-',0);
INSERT INTO "companions" VALUES('between-start','ConfigMap','jobs','j-between-start.cost-centre','c56f8e50-2179-47d6-928c-f2da45a39b23','be9c98af-6a0b-423b-88f4-1336275e86d9',NULL,NULL,0);
INSERT INTO "companions" VALUES('between-start','NetworkPolicy','jobs','j-between-start.gateway','2da128bc-ddf3-4abb-95c6-68248ef2fe05','be9c98af-6a0b-423b-88f4-1336275e86d9',NULL,NULL,0);
INSERT INTO "companions" VALUES('suspending','ConfigMap','jobs','j-suspending.ranks','dc143828-368b-438b-ae20-aa97fc9ba7e6','6f11d455-3d74-4b48-a697-8c52ac938c7b',NULL,NULL,0);
INSERT INTO "companions" VALUES('suspending','NetworkPolicy','jobs','j-suspending.network','f4da67de-8626-4b5d-996e-61dc87231217','6f11d455-3d74-4b48-a697-8c52ac938c7b',NULL,'-',0);
INSERT INTO "companions" VALUES('between-complete','ConfigMap','jobs','j-between-complete.cost-centre','ccc90c8b-5b8b-44c7-a2c4-1e1f1462e0e5','87eeea75-4a99-4c5d-8b64-1b8026b6f619',NULL,NULL,0);
INSERT INTO "companions" VALUES('between-complete','NetworkPolicy','jobs','j-between-complete.gateway','2d9720dd-5bc4-4dc4-9df6-9f9c0dc07dbe','87eeea75-4a99-4c5d-8b64-1b8026b6f619',NULL,NULL,0);
INSERT INTO "companions" VALUES('canceling','ConfigMap','jobs','j-canceling.ranks','fcdc3c62-336f-4f3e-849a-ea441c6d4e8b','8d936c11-3a44-43b8-b4b5-1fdab551712d',NULL,NULL,0);
INSERT INTO "companions" VALUES('canceling','NetworkPolicy','jobs','j-canceling.network','c0c1ff44-bbae-4d5b-afd6-591ee72c9d8b','8d936c11-3a44-43b8-b4b5-1fdab551712d',NULL,'-',0);
INSERT INTO "companions" VALUES('suspending','ConfigMap','jobs','j-suspending.cost-centre','174ac8e9-bac3-4e19-9956-c681920f8a23','6f11d455-3d74-4b48-a697-8c52ac938c7b',NULL,NULL,0);
INSERT INTO "companions" VALUES('suspending','NetworkPolicy','jobs','j-suspending.gateway','2bd9a48a-5d90-4a10-aae8-93253c3e617f','6f11d455-3d74-4b48-a697-8c52ac938c7b',NULL,NULL,0);
INSERT INTO "companions" VALUES('expiring','ConfigMap','jobs','j-expiring.ranks','75caf2e0-4bc3-48a3-a91f-3b17134257b6','0ade9590-2704-4afb-89cb-903bd1bc7206',NULL,NULL,0);
INSERT INTO "companions" VALUES('expiring','NetworkPolicy','jobs','j-expiring.network','943e2d94-50bb-4643-88cb-83c543036452','0ade9590-2704-4afb-89cb-903bd1bc7206',NULL,'-',0);
INSERT INTO "companions" VALUES('canceling','ConfigMap','jobs','j-canceling.cost-centre','c7c77b78-e02b-49ce-a79a-8d740f337427','8d936c11-3a44-43b8-b4b5-1fdab551712d',NULL,NULL,0);
INSERT INTO "companions" VALUES('canceling','NetworkPolicy','jobs','j-canceling.gateway','c8db5aaf-0250-4dce-b951-00a7e9f39c31','8d936c11-3a44-43b8-b4b5-1fdab551712d',NULL,NULL,0);
INSERT INTO "companions" VALUES('expiring','ConfigMap','jobs','j-expiring.cost-centre','1d396188-c53b-4955-b37d-fbed0addbbc4','0ade9590-2704-4afb-89cb-903bd1bc7206',NULL,NULL,0);
INSERT INTO "companions" VALUES('expiring','NetworkPolicy','jobs','j-expiring.gateway','6d8d8bd3-9b00-4f2f-826a-d1dc415e9234','0ade9590-2704-4afb-89cb-903bd1bc7206',NULL,NULL,0);
CREATE TABLE connections (
	job_id VARCHAR(40) NOT NULL, 
	peer_id VARCHAR(40) NOT NULL, 
	ports JSON NOT NULL, 
	CONSTRAINT pk_connections PRIMARY KEY (job_id, peer_id), 
	CONSTRAINT fk_connections_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "connections" VALUES('caller','web','[]');
INSERT INTO "connections" VALUES('prepared','kept','[9000]');
CREATE TABLE counters (
	name VARCHAR(32) NOT NULL, 
	value BIGINT NOT NULL, 
	CONSTRAINT pk_counters PRIMARY KEY (name)
);
INSERT INTO "counters" VALUES('updates',123);
INSERT INTO "counters" VALUES('updates_forgotten',10);
INSERT INTO "counters" VALUES('usage',75);
INSERT INTO "counters" VALUES('usage_forgotten',0);
INSERT INTO "counters" VALUES('usage_acknowledged',14);
CREATE TABLE due (
	job_id VARCHAR(40) NOT NULL, 
	plugin VARCHAR(63) NOT NULL, 
	at DOUBLE NOT NULL, 
	CONSTRAINT pk_due PRIMARY KEY (job_id, plugin), 
	CONSTRAINT fk_due_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "due" VALUES('pair','accounting',1795321975.0);
INSERT INTO "due" VALUES('pair','cost_centre',1795321978.0501373);
INSERT INTO "due" VALUES('web','expiry',1795357945.2263565);
INSERT INTO "due" VALUES('web','accounting',1795321975.0);
INSERT INTO "due" VALUES('web','cost_centre',1795321975.9982412);
INSERT INTO "due" VALUES('resuming','cost_centre',1795321978.050137);
INSERT INTO "due" VALUES('tasks','accounting',1795321976.0);
INSERT INTO "due" VALUES('tasks','cost_centre',1795321973.9761953);
INSERT INTO "due" VALUES('caller','accounting',1795321977.0);
INSERT INTO "due" VALUES('caller','cost_centre',1795321973.976196);
INSERT INTO "due" VALUES('resumed','cost_centre',1795321974.96676);
INSERT INTO "due" VALUES('suspended','accounting',1795321973.0);
INSERT INTO "due" VALUES('suspended','cost_centre',1795321974.481244);
INSERT INTO "due" VALUES('resumed','accounting',1795321974.0);
INSERT INTO "due" VALUES('expiring','accounting',1795321973.0);
INSERT INTO "due" VALUES('expiring','cost_centre',1795321975.5147955);
INSERT INTO "due" VALUES('evicted','cost_centre',1795321978.0501366);
INSERT INTO "due" VALUES('between-start','accounting',1795321973.0);
INSERT INTO "due" VALUES('suspending','accounting',1795321973.0);
INSERT INTO "due" VALUES('suspending','cost_centre',1795321975.514795);
INSERT INTO "due" VALUES('restarting','accounting',1795321973.0);
INSERT INTO "due" VALUES('restarting','cost_centre',1795321977.4973729);
CREATE TABLE extensions (
	job_id VARCHAR(40) NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	seconds DOUBLE NOT NULL, 
	at DOUBLE NOT NULL, 
	CONSTRAINT pk_extensions PRIMARY KEY (job_id, "key"), 
	CONSTRAINT fk_extensions_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "extensions" VALUES('web','2674f5e14459c94a672956a8adf86762',600.0,1795321954.6777847);
CREATE TABLE hooks (
	job_id VARCHAR(40) NOT NULL, 
	attempt INTEGER NOT NULL, 
	hook VARCHAR(16) NOT NULL, 
	plugin VARCHAR(63) NOT NULL, 
	at DOUBLE NOT NULL, 
	CONSTRAINT pk_hooks PRIMARY KEY (job_id, attempt, hook, plugin), 
	CONSTRAINT fk_hooks_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "hooks" VALUES('pair',1,'start','task',1795321934.030451);
INSERT INTO "hooks" VALUES('pair',1,'start','kata_container',1795321934.0359657);
INSERT INTO "hooks" VALUES('pair',1,'start','parameter',1795321934.0386147);
INSERT INTO "hooks" VALUES('pair',1,'start','file_mount',1795321934.0405397);
INSERT INTO "hooks" VALUES('pair',1,'start','multi_node',1795321934.0423775);
INSERT INTO "hooks" VALUES('pair',1,'start','shared_memory',1795321934.0438433);
INSERT INTO "hooks" VALUES('pair',1,'start','network_limit',1795321934.045117);
INSERT INTO "hooks" VALUES('pair',1,'start','fair_share',1795321934.046272);
INSERT INTO "hooks" VALUES('pair',1,'start','expiry',1795321934.047432);
INSERT INTO "hooks" VALUES('pair',1,'start','accounting',1795321934.0579238);
INSERT INTO "hooks" VALUES('pair',1,'start','connect_to_job',1795321934.062026);
INSERT INTO "hooks" VALUES('pair',1,'start','ingress',1795321934.063602);
INSERT INTO "hooks" VALUES('pair',1,'start','miscellaneous',1795321934.0660439);
INSERT INTO "hooks" VALUES('pair',1,'start','minikube',1795321934.068613);
INSERT INTO "hooks" VALUES('pair',1,'start','cost_centre',1795321934.0704253);
INSERT INTO "hooks" VALUES('pair',1,'start','proxy',1795321934.0747867);
INSERT INTO "hooks" VALUES('succeeded',1,'start','task',1795321943.1384494);
INSERT INTO "hooks" VALUES('succeeded',1,'start','kata_container',1795321943.151908);
INSERT INTO "hooks" VALUES('succeeded',1,'start','parameter',1795321943.153125);
INSERT INTO "hooks" VALUES('succeeded',1,'start','file_mount',1795321943.1540174);
INSERT INTO "hooks" VALUES('succeeded',1,'start','multi_node',1795321943.1549613);
INSERT INTO "hooks" VALUES('succeeded',1,'start','shared_memory',1795321943.1560717);
INSERT INTO "hooks" VALUES('succeeded',1,'start','network_limit',1795321943.159173);
INSERT INTO "hooks" VALUES('succeeded',1,'start','fair_share',1795321943.1604793);
INSERT INTO "hooks" VALUES('succeeded',1,'start','expiry',1795321943.1613538);
INSERT INTO "hooks" VALUES('succeeded',1,'start','accounting',1795321943.1638675);
INSERT INTO "hooks" VALUES('succeeded',1,'start','connect_to_job',1795321943.1656163);
INSERT INTO "hooks" VALUES('succeeded',1,'start','ingress',1795321943.1665614);
INSERT INTO "hooks" VALUES('succeeded',1,'start','miscellaneous',1795321943.1674156);
INSERT INTO "hooks" VALUES('succeeded',1,'start','minikube',1795321943.1684587);
INSERT INTO "hooks" VALUES('succeeded',1,'start','cost_centre',1795321943.1693978);
INSERT INTO "hooks" VALUES('succeeded',1,'start','proxy',1795321943.171079);
INSERT INTO "hooks" VALUES('expired',1,'start','task',1795321943.3608627);
INSERT INTO "hooks" VALUES('expired',1,'start','kata_container',1795321943.369352);
INSERT INTO "hooks" VALUES('expired',1,'start','parameter',1795321943.3705535);
INSERT INTO "hooks" VALUES('expired',1,'start','file_mount',1795321943.371715);
INSERT INTO "hooks" VALUES('expired',1,'start','multi_node',1795321943.3737886);
INSERT INTO "hooks" VALUES('expired',1,'start','shared_memory',1795321943.3746073);
INSERT INTO "hooks" VALUES('expired',1,'start','network_limit',1795321943.3753657);
INSERT INTO "hooks" VALUES('expired',1,'start','fair_share',1795321943.376061);
INSERT INTO "hooks" VALUES('expired',1,'start','expiry',1795321943.3767822);
INSERT INTO "hooks" VALUES('expired',1,'start','accounting',1795321943.3804681);
INSERT INTO "hooks" VALUES('expired',1,'start','connect_to_job',1795321943.3819466);
INSERT INTO "hooks" VALUES('expired',1,'start','ingress',1795321943.3830838);
INSERT INTO "hooks" VALUES('expired',1,'start','miscellaneous',1795321943.3837862);
INSERT INTO "hooks" VALUES('expired',1,'start','minikube',1795321943.3845205);
INSERT INTO "hooks" VALUES('expired',1,'start','cost_centre',1795321943.3853076);
INSERT INTO "hooks" VALUES('expired',1,'start','proxy',1795321943.3865776);
INSERT INTO "hooks" VALUES('unfunded',1,'start','task',1795321943.6310005);
INSERT INTO "hooks" VALUES('released',1,'start','task',1795321943.6329362);
INSERT INTO "hooks" VALUES('unfunded',1,'start','kata_container',1795321943.6447093);
INSERT INTO "hooks" VALUES('released',1,'start','kata_container',1795321943.6459866);
INSERT INTO "hooks" VALUES('unfunded',1,'start','parameter',1795321943.64702);
INSERT INTO "hooks" VALUES('released',1,'start','parameter',1795321943.6522098);
INSERT INTO "hooks" VALUES('unfunded',1,'start','file_mount',1795321943.6565506);
INSERT INTO "hooks" VALUES('released',1,'start','file_mount',1795321943.6740775);
INSERT INTO "hooks" VALUES('unfunded',1,'start','multi_node',1795321943.6753685);
INSERT INTO "hooks" VALUES('released',1,'start','multi_node',1795321943.680259);
INSERT INTO "hooks" VALUES('unfunded',1,'start','shared_memory',1795321943.6813114);
INSERT INTO "hooks" VALUES('released',1,'start','shared_memory',1795321943.6868804);
INSERT INTO "hooks" VALUES('unfunded',1,'start','network_limit',1795321943.6881661);
INSERT INTO "hooks" VALUES('released',1,'start','network_limit',1795321943.6891665);
INSERT INTO "hooks" VALUES('unfunded',1,'start','fair_share',1795321943.6900232);
INSERT INTO "hooks" VALUES('released',1,'start','fair_share',1795321943.6909606);
INSERT INTO "hooks" VALUES('unfunded',1,'start','expiry',1795321943.6918318);
INSERT INTO "hooks" VALUES('released',1,'start','expiry',1795321943.6957262);
INSERT INTO "hooks" VALUES('unfunded',1,'start','accounting',1795321943.7024999);
INSERT INTO "hooks" VALUES('released',1,'start','accounting',1795321943.7045271);
INSERT INTO "hooks" VALUES('unfunded',1,'start','connect_to_job',1795321943.7059438);
INSERT INTO "hooks" VALUES('released',1,'start','connect_to_job',1795321943.7068884);
INSERT INTO "hooks" VALUES('unfunded',1,'start','ingress',1795321943.707833);
INSERT INTO "hooks" VALUES('unfunded',1,'start','miscellaneous',1795321943.71065);
INSERT INTO "hooks" VALUES('released',1,'start','ingress',1795321943.7115452);
INSERT INTO "hooks" VALUES('unfunded',1,'start','minikube',1795321943.7123692);
INSERT INTO "hooks" VALUES('released',1,'start','miscellaneous',1795321943.713453);
INSERT INTO "hooks" VALUES('unfunded',1,'start','cost_centre',1795321943.7142923);
INSERT INTO "hooks" VALUES('released',1,'start','minikube',1795321943.7167475);
INSERT INTO "hooks" VALUES('unfunded',1,'start','proxy',1795321943.7180154);
INSERT INTO "hooks" VALUES('released',1,'start','cost_centre',1795321943.7206159);
INSERT INTO "hooks" VALUES('released',1,'start','proxy',1795321943.726181);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','task',1795321943.7283878);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','kata_container',1795321943.7318494);
INSERT INTO "hooks" VALUES('released',1,'complete','task',1795321943.7329898);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','parameter',1795321943.7338464);
INSERT INTO "hooks" VALUES('released',1,'complete','kata_container',1795321943.7346158);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','file_mount',1795321943.7354188);
INSERT INTO "hooks" VALUES('released',1,'complete','parameter',1795321943.7392154);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','multi_node',1795321943.7403104);
INSERT INTO "hooks" VALUES('released',1,'complete','file_mount',1795321943.7411768);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','shared_memory',1795321943.7421174);
INSERT INTO "hooks" VALUES('released',1,'complete','multi_node',1795321943.7430124);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','network_limit',1795321943.743931);
INSERT INTO "hooks" VALUES('released',1,'complete','shared_memory',1795321943.7447426);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','fair_share',1795321943.7456222);
INSERT INTO "hooks" VALUES('released',1,'complete','network_limit',1795321943.7464082);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','expiry',1795321943.7472067);
INSERT INTO "hooks" VALUES('released',1,'complete','fair_share',1795321943.748073);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','accounting',1795321943.7532604);
INSERT INTO "hooks" VALUES('released',1,'complete','expiry',1795321943.7544215);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','connect_to_job',1795321943.755464);
INSERT INTO "hooks" VALUES('released',1,'complete','accounting',1795321943.756401);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','ingress',1795321943.757284);
INSERT INTO "hooks" VALUES('released',1,'complete','connect_to_job',1795321943.7582479);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','miscellaneous',1795321943.759107);
INSERT INTO "hooks" VALUES('released',1,'complete','ingress',1795321943.7599742);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','minikube',1795321943.7608962);
INSERT INTO "hooks" VALUES('released',1,'complete','miscellaneous',1795321943.7619984);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','cost_centre',1795321943.762976);
INSERT INTO "hooks" VALUES('released',1,'complete','minikube',1795321943.7639186);
INSERT INTO "hooks" VALUES('released',1,'complete','cost_centre',1795321943.7701302);
INSERT INTO "hooks" VALUES('unfunded',1,'complete','proxy',1795321943.771196);
INSERT INTO "hooks" VALUES('released',1,'complete','proxy',1795321943.7766876);
INSERT INTO "hooks" VALUES('expired',1,'complete','task',1795321944.175667);
INSERT INTO "hooks" VALUES('expired',1,'complete','kata_container',1795321944.176535);
INSERT INTO "hooks" VALUES('expired',1,'complete','parameter',1795321944.177543);
INSERT INTO "hooks" VALUES('expired',1,'complete','file_mount',1795321944.1783562);
INSERT INTO "hooks" VALUES('expired',1,'complete','multi_node',1795321944.1791942);
INSERT INTO "hooks" VALUES('expired',1,'complete','shared_memory',1795321944.179898);
INSERT INTO "hooks" VALUES('expired',1,'complete','network_limit',1795321944.1806486);
INSERT INTO "hooks" VALUES('expired',1,'complete','fair_share',1795321944.1814783);
INSERT INTO "hooks" VALUES('expired',1,'complete','expiry',1795321944.1822517);
INSERT INTO "hooks" VALUES('expired',1,'complete','accounting',1795321944.182984);
INSERT INTO "hooks" VALUES('expired',1,'complete','connect_to_job',1795321944.183667);
INSERT INTO "hooks" VALUES('expired',1,'complete','ingress',1795321944.184419);
INSERT INTO "hooks" VALUES('expired',1,'complete','miscellaneous',1795321944.1884375);
INSERT INTO "hooks" VALUES('expired',1,'complete','minikube',1795321944.1892252);
INSERT INTO "hooks" VALUES('expired',1,'complete','cost_centre',1795321944.1900554);
INSERT INTO "hooks" VALUES('expired',1,'complete','proxy',1795321944.1939087);
INSERT INTO "hooks" VALUES('failed',1,'start','task',1795321944.3216152);
INSERT INTO "hooks" VALUES('failed',1,'start','kata_container',1795321944.329268);
INSERT INTO "hooks" VALUES('failed',1,'start','parameter',1795321944.3304782);
INSERT INTO "hooks" VALUES('failed',1,'start','file_mount',1795321944.3314266);
INSERT INTO "hooks" VALUES('failed',1,'start','multi_node',1795321944.332225);
INSERT INTO "hooks" VALUES('failed',1,'start','shared_memory',1795321944.333216);
INSERT INTO "hooks" VALUES('failed',1,'start','network_limit',1795321944.3339753);
INSERT INTO "hooks" VALUES('failed',1,'start','fair_share',1795321944.334718);
INSERT INTO "hooks" VALUES('failed',1,'start','expiry',1795321944.3354337);
INSERT INTO "hooks" VALUES('failed',1,'start','accounting',1795321944.337507);
INSERT INTO "hooks" VALUES('failed',1,'start','connect_to_job',1795321944.3388507);
INSERT INTO "hooks" VALUES('failed',1,'start','ingress',1795321944.3395455);
INSERT INTO "hooks" VALUES('failed',1,'start','miscellaneous',1795321944.3407729);
INSERT INTO "hooks" VALUES('failed',1,'start','minikube',1795321944.3414958);
INSERT INTO "hooks" VALUES('failed',1,'start','cost_centre',1795321944.3423283);
INSERT INTO "hooks" VALUES('failed',1,'start','proxy',1795321944.344216);
INSERT INTO "hooks" VALUES('failed',1,'complete','task',1795321944.4600487);
INSERT INTO "hooks" VALUES('failed',1,'complete','kata_container',1795321944.4610386);
INSERT INTO "hooks" VALUES('failed',1,'complete','parameter',1795321944.4618046);
INSERT INTO "hooks" VALUES('failed',1,'complete','file_mount',1795321944.4625494);
INSERT INTO "hooks" VALUES('failed',1,'complete','multi_node',1795321944.4632514);
INSERT INTO "hooks" VALUES('failed',1,'complete','shared_memory',1795321944.4648113);
INSERT INTO "hooks" VALUES('failed',1,'complete','network_limit',1795321944.4655685);
INSERT INTO "hooks" VALUES('failed',1,'complete','fair_share',1795321944.466282);
INSERT INTO "hooks" VALUES('failed',1,'complete','expiry',1795321944.4669957);
INSERT INTO "hooks" VALUES('failed',1,'complete','accounting',1795321944.4677234);
INSERT INTO "hooks" VALUES('failed',1,'complete','connect_to_job',1795321944.468464);
INSERT INTO "hooks" VALUES('failed',1,'complete','ingress',1795321944.4691575);
INSERT INTO "hooks" VALUES('failed',1,'complete','miscellaneous',1795321944.4698122);
INSERT INTO "hooks" VALUES('failed',1,'complete','minikube',1795321944.470457);
INSERT INTO "hooks" VALUES('failed',1,'complete','cost_centre',1795321944.4712546);
INSERT INTO "hooks" VALUES('failed',1,'complete','proxy',1795321944.4789488);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','task',1795321944.481937);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','kata_container',1795321944.4827683);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','parameter',1795321944.4890242);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','file_mount',1795321944.4933286);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','multi_node',1795321944.494275);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','shared_memory',1795321944.4950666);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','network_limit',1795321944.496001);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','fair_share',1795321944.4969375);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','expiry',1795321944.4978857);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','accounting',1795321944.5020807);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','connect_to_job',1795321944.5028417);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','ingress',1795321944.5042968);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','miscellaneous',1795321944.5049717);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','minikube',1795321944.5054996);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','cost_centre',1795321944.50618);
INSERT INTO "hooks" VALUES('failed',1,'cleanup','proxy',1795321944.5077298);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','task',1795321944.9167428);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','kata_container',1795321944.9180362);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','parameter',1795321944.9189193);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','file_mount',1795321944.9200656);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','multi_node',1795321944.9258451);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','shared_memory',1795321944.9278781);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','network_limit',1795321944.9292781);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','fair_share',1795321944.9303122);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','expiry',1795321944.930979);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','accounting',1795321944.9346936);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','connect_to_job',1795321944.9354074);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','ingress',1795321944.9405508);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','miscellaneous',1795321944.941443);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','minikube',1795321944.9420931);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','cost_centre',1795321944.942951);
INSERT INTO "hooks" VALUES('unfunded',1,'cleanup','proxy',1795321944.9541287);
INSERT INTO "hooks" VALUES('released',1,'cleanup','task',1795321945.004074);
INSERT INTO "hooks" VALUES('released',1,'cleanup','kata_container',1795321945.0052135);
INSERT INTO "hooks" VALUES('released',1,'cleanup','parameter',1795321945.0060122);
INSERT INTO "hooks" VALUES('released',1,'cleanup','file_mount',1795321945.0066795);
INSERT INTO "hooks" VALUES('released',1,'cleanup','multi_node',1795321945.0074363);
INSERT INTO "hooks" VALUES('released',1,'cleanup','shared_memory',1795321945.0081458);
INSERT INTO "hooks" VALUES('released',1,'cleanup','network_limit',1795321945.0091176);
INSERT INTO "hooks" VALUES('released',1,'cleanup','fair_share',1795321945.0098941);
INSERT INTO "hooks" VALUES('released',1,'cleanup','expiry',1795321945.0105205);
INSERT INTO "hooks" VALUES('released',1,'cleanup','accounting',1795321945.013319);
INSERT INTO "hooks" VALUES('released',1,'cleanup','connect_to_job',1795321945.0138972);
INSERT INTO "hooks" VALUES('released',1,'cleanup','ingress',1795321945.0161254);
INSERT INTO "hooks" VALUES('released',1,'cleanup','miscellaneous',1795321945.02043);
INSERT INTO "hooks" VALUES('released',1,'cleanup','minikube',1795321945.0212142);
INSERT INTO "hooks" VALUES('released',1,'cleanup','cost_centre',1795321945.0219736);
INSERT INTO "hooks" VALUES('released',1,'cleanup','proxy',1795321945.024322);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','task',1795321945.03891);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','kata_container',1795321945.0400217);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','parameter',1795321945.041024);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','file_mount',1795321945.0418413);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','multi_node',1795321945.042528);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','shared_memory',1795321945.0432215);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','network_limit',1795321945.0446236);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','fair_share',1795321945.0453444);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','expiry',1795321945.045956);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','accounting',1795321945.0488217);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','connect_to_job',1795321945.0494971);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','ingress',1795321945.0506465);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','miscellaneous',1795321945.051341);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','minikube',1795321945.0519776);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','cost_centre',1795321945.0527408);
INSERT INTO "hooks" VALUES('expired',1,'cleanup','proxy',1795321945.114858);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','task',1795321945.1246684);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','kata_container',1795321945.1260653);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','parameter',1795321945.1302073);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','file_mount',1795321945.1309526);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','multi_node',1795321945.131552);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','shared_memory',1795321945.132146);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','network_limit',1795321945.13282);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','fair_share',1795321945.1334155);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','expiry',1795321945.1339533);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','accounting',1795321945.1344824);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','connect_to_job',1795321945.1350088);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','ingress',1795321945.1355577);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','miscellaneous',1795321945.136066);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','minikube',1795321945.1366916);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','cost_centre',1795321945.1376507);
INSERT INTO "hooks" VALUES('succeeded',1,'complete','proxy',1795321945.1392367);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','task',1795321945.142035);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','kata_container',1795321945.142778);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','parameter',1795321945.1445518);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','file_mount',1795321945.1463504);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','multi_node',1795321945.1470196);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','shared_memory',1795321945.1477404);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','network_limit',1795321945.1484902);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','fair_share',1795321945.1491532);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','expiry',1795321945.149687);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','accounting',1795321945.1523852);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','connect_to_job',1795321945.1530197);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','ingress',1795321945.1540892);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','miscellaneous',1795321945.154626);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','minikube',1795321945.155158);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','cost_centre',1795321945.158898);
INSERT INTO "hooks" VALUES('succeeded',1,'cleanup','proxy',1795321945.1653898);
INSERT INTO "hooks" VALUES('web',1,'start','task',1795321945.510039);
INSERT INTO "hooks" VALUES('web',1,'start','kata_container',1795321945.511002);
INSERT INTO "hooks" VALUES('web',1,'start','parameter',1795321945.5117512);
INSERT INTO "hooks" VALUES('web',1,'start','file_mount',1795321945.512437);
INSERT INTO "hooks" VALUES('web',1,'start','multi_node',1795321945.5131247);
INSERT INTO "hooks" VALUES('web',1,'start','shared_memory',1795321945.5137053);
INSERT INTO "hooks" VALUES('web',1,'start','network_limit',1795321945.5142574);
INSERT INTO "hooks" VALUES('web',1,'start','fair_share',1795321945.5148175);
INSERT INTO "hooks" VALUES('web',1,'start','expiry',1795321945.5153623);
INSERT INTO "hooks" VALUES('web',1,'start','accounting',1795321945.5180395);
INSERT INTO "hooks" VALUES('web',1,'start','connect_to_job',1795321945.5192258);
INSERT INTO "hooks" VALUES('web',1,'start','ingress',1795321945.5231853);
INSERT INTO "hooks" VALUES('web',1,'start','miscellaneous',1795321945.5239232);
INSERT INTO "hooks" VALUES('web',1,'start','minikube',1795321945.5245364);
INSERT INTO "hooks" VALUES('web',1,'start','cost_centre',1795321945.5252225);
INSERT INTO "hooks" VALUES('web',1,'start','proxy',1795321945.5264475);
INSERT INTO "hooks" VALUES('resuming',1,'start','task',1795321947.0047073);
INSERT INTO "hooks" VALUES('resuming',1,'start','kata_container',1795321947.0057716);
INSERT INTO "hooks" VALUES('resuming',1,'start','parameter',1795321947.0066848);
INSERT INTO "hooks" VALUES('resuming',1,'start','file_mount',1795321947.0076087);
INSERT INTO "hooks" VALUES('resuming',1,'start','multi_node',1795321947.0084887);
INSERT INTO "hooks" VALUES('resuming',1,'start','shared_memory',1795321947.0092578);
INSERT INTO "hooks" VALUES('resuming',1,'start','network_limit',1795321947.0099335);
INSERT INTO "hooks" VALUES('resuming',1,'start','fair_share',1795321947.010601);
INSERT INTO "hooks" VALUES('resuming',1,'start','expiry',1795321947.0112615);
INSERT INTO "hooks" VALUES('resuming',1,'start','accounting',1795321947.0137959);
INSERT INTO "hooks" VALUES('resuming',1,'start','connect_to_job',1795321947.0153813);
INSERT INTO "hooks" VALUES('resuming',1,'start','ingress',1795321947.0161226);
INSERT INTO "hooks" VALUES('resuming',1,'start','miscellaneous',1795321947.0169315);
INSERT INTO "hooks" VALUES('resuming',1,'start','minikube',1795321947.017924);
INSERT INTO "hooks" VALUES('resuming',1,'start','cost_centre',1795321947.0188346);
INSERT INTO "hooks" VALUES('resuming',1,'start','proxy',1795321947.0202835);
INSERT INTO "hooks" VALUES('tasks',1,'start','task',1795321947.8090913);
INSERT INTO "hooks" VALUES('tasks',1,'start','kata_container',1795321947.8210707);
INSERT INTO "hooks" VALUES('tasks',1,'start','parameter',1795321947.8369513);
INSERT INTO "hooks" VALUES('tasks',1,'start','file_mount',1795321947.8568876);
INSERT INTO "hooks" VALUES('tasks',1,'start','multi_node',1795321947.871652);
INSERT INTO "hooks" VALUES('tasks',1,'start','shared_memory',1795321947.8730412);
INSERT INTO "hooks" VALUES('tasks',1,'start','network_limit',1795321947.8740098);
INSERT INTO "hooks" VALUES('tasks',1,'start','fair_share',1795321947.8748653);
INSERT INTO "hooks" VALUES('tasks',1,'start','expiry',1795321947.875676);
INSERT INTO "hooks" VALUES('tasks',1,'start','accounting',1795321947.8787832);
INSERT INTO "hooks" VALUES('tasks',1,'start','connect_to_job',1795321947.8806689);
INSERT INTO "hooks" VALUES('tasks',1,'start','ingress',1795321947.8815732);
INSERT INTO "hooks" VALUES('tasks',1,'start','miscellaneous',1795321947.8824034);
INSERT INTO "hooks" VALUES('tasks',1,'start','minikube',1795321947.8832026);
INSERT INTO "hooks" VALUES('tasks',1,'start','cost_centre',1795321947.8841112);
INSERT INTO "hooks" VALUES('tasks',1,'start','proxy',1795321947.8868191);
INSERT INTO "hooks" VALUES('caller',1,'start','task',1795321947.979994);
INSERT INTO "hooks" VALUES('caller',1,'start','kata_container',1795321947.9812624);
INSERT INTO "hooks" VALUES('caller',1,'start','parameter',1795321947.9821796);
INSERT INTO "hooks" VALUES('caller',1,'start','file_mount',1795321947.9830303);
INSERT INTO "hooks" VALUES('caller',1,'start','multi_node',1795321947.9838753);
INSERT INTO "hooks" VALUES('caller',1,'start','shared_memory',1795321947.9847522);
INSERT INTO "hooks" VALUES('caller',1,'start','network_limit',1795321947.9854858);
INSERT INTO "hooks" VALUES('caller',1,'start','fair_share',1795321947.9862256);
INSERT INTO "hooks" VALUES('caller',1,'start','expiry',1795321947.9869757);
INSERT INTO "hooks" VALUES('caller',1,'start','accounting',1795321947.9897485);
INSERT INTO "hooks" VALUES('caller',1,'start','connect_to_job',1795321947.9924479);
INSERT INTO "hooks" VALUES('caller',1,'start','ingress',1795321947.9933531);
INSERT INTO "hooks" VALUES('caller',1,'start','miscellaneous',1795321947.9941077);
INSERT INTO "hooks" VALUES('caller',1,'start','minikube',1795321947.9948514);
INSERT INTO "hooks" VALUES('caller',1,'start','cost_centre',1795321947.995721);
INSERT INTO "hooks" VALUES('caller',1,'start','proxy',1795321947.998157);
INSERT INTO "hooks" VALUES('resumed',1,'start','task',1795321948.4227154);
INSERT INTO "hooks" VALUES('resumed',1,'start','kata_container',1795321948.4241462);
INSERT INTO "hooks" VALUES('resumed',1,'start','parameter',1795321948.4253616);
INSERT INTO "hooks" VALUES('resumed',1,'start','file_mount',1795321948.427863);
INSERT INTO "hooks" VALUES('resumed',1,'start','multi_node',1795321948.429083);
INSERT INTO "hooks" VALUES('resumed',1,'start','shared_memory',1795321948.4302);
INSERT INTO "hooks" VALUES('resumed',1,'start','network_limit',1795321948.4315069);
INSERT INTO "hooks" VALUES('resumed',1,'start','fair_share',1795321948.4327376);
INSERT INTO "hooks" VALUES('resumed',1,'start','expiry',1795321948.4338036);
INSERT INTO "hooks" VALUES('resumed',1,'start','accounting',1795321948.4375832);
INSERT INTO "hooks" VALUES('resumed',1,'start','connect_to_job',1795321948.4408953);
INSERT INTO "hooks" VALUES('resumed',1,'start','ingress',1795321948.4425793);
INSERT INTO "hooks" VALUES('resumed',1,'start','miscellaneous',1795321948.4441001);
INSERT INTO "hooks" VALUES('resumed',1,'start','minikube',1795321948.445664);
INSERT INTO "hooks" VALUES('resumed',1,'start','cost_centre',1795321948.4471326);
INSERT INTO "hooks" VALUES('resumed',1,'start','proxy',1795321948.4520552);
INSERT INTO "hooks" VALUES('suspended',1,'start','task',1795321948.816959);
INSERT INTO "hooks" VALUES('suspended',1,'start','kata_container',1795321948.8187757);
INSERT INTO "hooks" VALUES('suspended',1,'start','parameter',1795321948.8201022);
INSERT INTO "hooks" VALUES('suspended',1,'start','file_mount',1795321948.8212774);
INSERT INTO "hooks" VALUES('suspended',1,'start','multi_node',1795321948.8254075);
INSERT INTO "hooks" VALUES('suspended',1,'start','shared_memory',1795321948.828819);
INSERT INTO "hooks" VALUES('suspended',1,'start','network_limit',1795321948.833419);
INSERT INTO "hooks" VALUES('suspended',1,'start','fair_share',1795321948.837426);
INSERT INTO "hooks" VALUES('suspended',1,'start','expiry',1795321948.8499937);
INSERT INTO "hooks" VALUES('suspended',1,'start','accounting',1795321948.881739);
INSERT INTO "hooks" VALUES('suspended',1,'start','connect_to_job',1795321948.9087224);
INSERT INTO "hooks" VALUES('suspended',1,'start','ingress',1795321948.9191458);
INSERT INTO "hooks" VALUES('suspended',1,'start','miscellaneous',1795321948.9248936);
INSERT INTO "hooks" VALUES('suspended',1,'start','minikube',1795321948.9258928);
INSERT INTO "hooks" VALUES('suspended',1,'start','cost_centre',1795321948.926729);
INSERT INTO "hooks" VALUES('suspended',1,'start','proxy',1795321948.928376);
INSERT INTO "hooks" VALUES('resumed',2,'start','task',1795321954.6272027);
INSERT INTO "hooks" VALUES('resumed',2,'start','kata_container',1795321954.6298654);
INSERT INTO "hooks" VALUES('resumed',2,'start','parameter',1795321954.6378424);
INSERT INTO "hooks" VALUES('resumed',2,'start','file_mount',1795321954.6401544);
INSERT INTO "hooks" VALUES('resumed',2,'start','multi_node',1795321954.6412284);
INSERT INTO "hooks" VALUES('resumed',2,'start','shared_memory',1795321954.6421618);
INSERT INTO "hooks" VALUES('resumed',2,'start','network_limit',1795321954.643052);
INSERT INTO "hooks" VALUES('resumed',2,'start','fair_share',1795321954.6438687);
INSERT INTO "hooks" VALUES('resumed',2,'start','expiry',1795321954.644634);
INSERT INTO "hooks" VALUES('resumed',2,'start','accounting',1795321954.6472085);
INSERT INTO "hooks" VALUES('resumed',2,'start','connect_to_job',1795321954.6488197);
INSERT INTO "hooks" VALUES('resumed',2,'start','ingress',1795321954.6496835);
INSERT INTO "hooks" VALUES('resumed',2,'start','miscellaneous',1795321954.6504054);
INSERT INTO "hooks" VALUES('resumed',2,'start','minikube',1795321954.651155);
INSERT INTO "hooks" VALUES('resumed',2,'start','cost_centre',1795321954.6519554);
INSERT INTO "hooks" VALUES('resumed',2,'start','proxy',1795321954.6552153);
INSERT INTO "hooks" VALUES('expiring',1,'start','task',1795321959.7339358);
INSERT INTO "hooks" VALUES('expiring',1,'start','kata_container',1795321959.7491121);
INSERT INTO "hooks" VALUES('expiring',1,'start','parameter',1795321959.7729023);
INSERT INTO "hooks" VALUES('expiring',1,'start','file_mount',1795321959.7929204);
INSERT INTO "hooks" VALUES('expiring',1,'start','multi_node',1795321959.7957215);
INSERT INTO "hooks" VALUES('expiring',1,'start','shared_memory',1795321959.8159468);
INSERT INTO "hooks" VALUES('expiring',1,'start','network_limit',1795321959.8491817);
INSERT INTO "hooks" VALUES('expiring',1,'start','fair_share',1795321959.8538842);
INSERT INTO "hooks" VALUES('expiring',1,'start','expiry',1795321959.885262);
INSERT INTO "hooks" VALUES('expiring',1,'start','accounting',1795321959.96507);
INSERT INTO "hooks" VALUES('expiring',1,'start','connect_to_job',1795321959.9970949);
INSERT INTO "hooks" VALUES('expiring',1,'start','ingress',1795321960.0183122);
INSERT INTO "hooks" VALUES('expiring',1,'start','miscellaneous',1795321960.070934);
INSERT INTO "hooks" VALUES('expiring',1,'start','minikube',1795321960.1557412);
INSERT INTO "hooks" VALUES('expiring',1,'start','cost_centre',1795321960.1799526);
INSERT INTO "hooks" VALUES('canceling',1,'start','task',1795321960.1865358);
INSERT INTO "hooks" VALUES('expiring',1,'start','proxy',1795321960.205866);
INSERT INTO "hooks" VALUES('canceling',1,'start','kata_container',1795321960.2356842);
INSERT INTO "hooks" VALUES('canceling',1,'start','parameter',1795321960.2706785);
INSERT INTO "hooks" VALUES('canceling',1,'start','file_mount',1795321960.3041692);
INSERT INTO "hooks" VALUES('canceling',1,'start','multi_node',1795321960.3210254);
INSERT INTO "hooks" VALUES('canceling',1,'start','shared_memory',1795321960.3370266);
INSERT INTO "hooks" VALUES('canceling',1,'start','network_limit',1795321960.3730621);
INSERT INTO "hooks" VALUES('canceling',1,'start','fair_share',1795321960.3888745);
INSERT INTO "hooks" VALUES('canceling',1,'start','expiry',1795321960.4098246);
INSERT INTO "hooks" VALUES('canceling',1,'start','accounting',1795321960.5401196);
INSERT INTO "hooks" VALUES('canceling',1,'start','connect_to_job',1795321960.6291018);
INSERT INTO "hooks" VALUES('canceling',1,'start','ingress',1795321960.6531997);
INSERT INTO "hooks" VALUES('canceling',1,'start','miscellaneous',1795321960.6766083);
INSERT INTO "hooks" VALUES('canceling',1,'start','minikube',1795321960.6934502);
INSERT INTO "hooks" VALUES('canceling',1,'start','cost_centre',1795321960.6974764);
INSERT INTO "hooks" VALUES('canceling',1,'start','proxy',1795321960.7008047);
INSERT INTO "hooks" VALUES('between-complete',1,'start','task',1795321961.8129554);
INSERT INTO "hooks" VALUES('evicted',1,'start','task',1795321961.8168592);
INSERT INTO "hooks" VALUES('between-complete',1,'start','kata_container',1795321961.8328667);
INSERT INTO "hooks" VALUES('evicted',1,'start','kata_container',1795321961.8689823);
INSERT INTO "hooks" VALUES('between-complete',1,'start','parameter',1795321961.8929224);
INSERT INTO "hooks" VALUES('evicted',1,'start','parameter',1795321961.9012995);
INSERT INTO "hooks" VALUES('between-complete',1,'start','file_mount',1795321961.9292152);
INSERT INTO "hooks" VALUES('evicted',1,'start','file_mount',1795321961.9500816);
INSERT INTO "hooks" VALUES('between-complete',1,'start','multi_node',1795321961.9770484);
INSERT INTO "hooks" VALUES('evicted',1,'start','multi_node',1795321962.0089433);
INSERT INTO "hooks" VALUES('between-complete',1,'start','shared_memory',1795321962.035049);
INSERT INTO "hooks" VALUES('evicted',1,'start','shared_memory',1795321962.0546675);
INSERT INTO "hooks" VALUES('between-complete',1,'start','network_limit',1795321962.0696259);
INSERT INTO "hooks" VALUES('evicted',1,'start','network_limit',1795321962.0805516);
INSERT INTO "hooks" VALUES('between-complete',1,'start','fair_share',1795321962.110337);
INSERT INTO "hooks" VALUES('evicted',1,'start','fair_share',1795321962.1291227);
INSERT INTO "hooks" VALUES('between-complete',1,'start','expiry',1795321962.1497374);
INSERT INTO "hooks" VALUES('evicted',1,'start','expiry',1795321962.1608317);
INSERT INTO "hooks" VALUES('between-complete',1,'start','accounting',1795321962.1862943);
INSERT INTO "hooks" VALUES('evicted',1,'start','accounting',1795321962.1990395);
INSERT INTO "hooks" VALUES('between-complete',1,'start','connect_to_job',1795321962.2256258);
INSERT INTO "hooks" VALUES('evicted',1,'start','connect_to_job',1795321962.252857);
INSERT INTO "hooks" VALUES('between-complete',1,'start','ingress',1795321962.2832043);
INSERT INTO "hooks" VALUES('evicted',1,'start','ingress',1795321962.3268764);
INSERT INTO "hooks" VALUES('between-complete',1,'start','miscellaneous',1795321962.341761);
INSERT INTO "hooks" VALUES('evicted',1,'start','miscellaneous',1795321962.3433425);
INSERT INTO "hooks" VALUES('between-complete',1,'start','minikube',1795321962.3446162);
INSERT INTO "hooks" VALUES('evicted',1,'start','minikube',1795321962.3459692);
INSERT INTO "hooks" VALUES('between-complete',1,'start','cost_centre',1795321962.3474002);
INSERT INTO "hooks" VALUES('evicted',1,'start','cost_centre',1795321962.3504295);
INSERT INTO "hooks" VALUES('between-complete',1,'start','proxy',1795321962.3520343);
INSERT INTO "hooks" VALUES('evicted',1,'start','proxy',1795321962.3550267);
INSERT INTO "hooks" VALUES('between-start',1,'start','task',1795321964.764741);
INSERT INTO "hooks" VALUES('between-start',1,'start','kata_container',1795321964.8288686);
INSERT INTO "hooks" VALUES('suspending',1,'start','task',1795321964.8591213);
INSERT INTO "hooks" VALUES('between-start',1,'start','parameter',1795321964.8768055);
INSERT INTO "hooks" VALUES('suspending',1,'start','kata_container',1795321964.9048977);
INSERT INTO "hooks" VALUES('between-start',1,'start','file_mount',1795321964.9214346);
INSERT INTO "hooks" VALUES('suspending',1,'start','parameter',1795321964.9227786);
INSERT INTO "hooks" VALUES('between-start',1,'start','multi_node',1795321964.9237447);
INSERT INTO "hooks" VALUES('suspending',1,'start','file_mount',1795321964.9246776);
INSERT INTO "hooks" VALUES('between-start',1,'start','shared_memory',1795321964.9255478);
INSERT INTO "hooks" VALUES('suspending',1,'start','multi_node',1795321964.9263706);
INSERT INTO "hooks" VALUES('between-start',1,'start','network_limit',1795321964.9271462);
INSERT INTO "hooks" VALUES('suspending',1,'start','shared_memory',1795321964.9278848);
INSERT INTO "hooks" VALUES('between-start',1,'start','fair_share',1795321964.928633);
INSERT INTO "hooks" VALUES('suspending',1,'start','network_limit',1795321964.9293768);
INSERT INTO "hooks" VALUES('between-start',1,'start','expiry',1795321964.9300587);
INSERT INTO "hooks" VALUES('suspending',1,'start','fair_share',1795321964.9307363);
INSERT INTO "hooks" VALUES('suspending',1,'start','expiry',1795321964.9328952);
INSERT INTO "hooks" VALUES('between-start',1,'start','accounting',1795321964.9346688);
INSERT INTO "hooks" VALUES('between-start',1,'start','connect_to_job',1795321964.9389622);
INSERT INTO "hooks" VALUES('suspending',1,'start','accounting',1795321964.9396005);
INSERT INTO "hooks" VALUES('between-start',1,'start','ingress',1795321964.9408255);
INSERT INTO "hooks" VALUES('suspending',1,'start','connect_to_job',1795321964.9414797);
INSERT INTO "hooks" VALUES('between-start',1,'start','miscellaneous',1795321964.9420443);
INSERT INTO "hooks" VALUES('suspending',1,'start','ingress',1795321964.9425805);
INSERT INTO "hooks" VALUES('between-start',1,'start','minikube',1795321964.9431155);
INSERT INTO "hooks" VALUES('suspending',1,'start','miscellaneous',1795321964.9456687);
INSERT INTO "hooks" VALUES('suspending',1,'start','minikube',1795321964.9527495);
INSERT INTO "hooks" VALUES('suspending',1,'start','cost_centre',1795321964.9729154);
INSERT INTO "hooks" VALUES('suspending',1,'start','proxy',1795321964.9967768);
INSERT INTO "hooks" VALUES('restarting',1,'start','task',1795321966.4094653);
INSERT INTO "hooks" VALUES('restarting',1,'start','kata_container',1795321966.5054665);
INSERT INTO "hooks" VALUES('restarting',1,'start','parameter',1795321966.5927465);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','task',1795321966.6731102);
INSERT INTO "hooks" VALUES('restarting',1,'start','file_mount',1795321966.7050524);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','kata_container',1795321966.7687807);
INSERT INTO "hooks" VALUES('restarting',1,'start','multi_node',1795321966.8254747);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','parameter',1795321966.8306158);
INSERT INTO "hooks" VALUES('restarting',1,'start','shared_memory',1795321966.8449004);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','file_mount',1795321966.8467286);
INSERT INTO "hooks" VALUES('restarting',1,'start','network_limit',1795321966.8771195);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','multi_node',1795321966.908943);
INSERT INTO "hooks" VALUES('restarting',1,'start','fair_share',1795321966.9212503);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','shared_memory',1795321966.923654);
INSERT INTO "hooks" VALUES('restarting',1,'start','expiry',1795321966.9247947);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','network_limit',1795321966.9347682);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','fair_share',1795321966.9425297);
INSERT INTO "hooks" VALUES('restarting',1,'start','accounting',1795321966.9468958);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','expiry',1795321966.9489908);
INSERT INTO "hooks" VALUES('restarting',1,'start','connect_to_job',1795321966.9736304);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','accounting',1795321966.9971254);
INSERT INTO "hooks" VALUES('restarting',1,'start','ingress',1795321967.081047);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','connect_to_job',1795321967.0988157);
INSERT INTO "hooks" VALUES('restarting',1,'start','miscellaneous',1795321967.175081);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','ingress',1795321967.1931515);
INSERT INTO "hooks" VALUES('restarting',1,'start','minikube',1795321967.2344275);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','miscellaneous',1795321967.250251);
INSERT INTO "hooks" VALUES('restarting',1,'start','cost_centre',1795321967.2606103);
INSERT INTO "hooks" VALUES('between-complete',1,'complete','minikube',1795321967.2643209);
INSERT INTO "hooks" VALUES('restarting',1,'start','proxy',1795321967.2765422);
INSERT INTO "hooks" VALUES('canceling',1,'complete','task',1795321967.8502355);
INSERT INTO "hooks" VALUES('canceling',1,'complete','kata_container',1795321967.86236);
INSERT INTO "hooks" VALUES('canceling',1,'complete','parameter',1795321967.8768454);
INSERT INTO "hooks" VALUES('canceling',1,'complete','file_mount',1795321967.8878453);
INSERT INTO "hooks" VALUES('canceling',1,'complete','multi_node',1795321967.891167);
INSERT INTO "hooks" VALUES('canceling',1,'complete','shared_memory',1795321967.9573627);
INSERT INTO "hooks" VALUES('canceling',1,'complete','network_limit',1795321967.968698);
INSERT INTO "hooks" VALUES('canceling',1,'complete','fair_share',1795321967.9699652);
INSERT INTO "hooks" VALUES('canceling',1,'complete','expiry',1795321967.9709728);
INSERT INTO "hooks" VALUES('canceling',1,'complete','accounting',1795321967.9969838);
INSERT INTO "hooks" VALUES('canceling',1,'complete','connect_to_job',1795321968.0068502);
INSERT INTO "hooks" VALUES('canceling',1,'complete','ingress',1795321968.0302758);
INSERT INTO "hooks" VALUES('canceling',1,'complete','miscellaneous',1795321968.056898);
INSERT INTO "hooks" VALUES('canceling',1,'complete','minikube',1795321968.0618777);
INSERT INTO "hooks" VALUES('canceling',1,'complete','cost_centre',1795321968.0767875);
INSERT INTO "hooks" VALUES('canceling',1,'complete','proxy',1795321968.100821);
INSERT INTO "hooks" VALUES('expiring',1,'complete','task',1795321970.6898625);
INSERT INTO "hooks" VALUES('expiring',1,'complete','kata_container',1795321970.7177439);
INSERT INTO "hooks" VALUES('expiring',1,'complete','parameter',1795321970.7393336);
INSERT INTO "hooks" VALUES('expiring',1,'complete','file_mount',1795321970.7611008);
INSERT INTO "hooks" VALUES('expiring',1,'complete','multi_node',1795321970.775466);
INSERT INTO "hooks" VALUES('expiring',1,'complete','shared_memory',1795321970.7890902);
INSERT INTO "hooks" VALUES('expiring',1,'complete','network_limit',1795321970.8090458);
INSERT INTO "hooks" VALUES('expiring',1,'complete','fair_share',1795321970.8264298);
INSERT INTO "hooks" VALUES('expiring',1,'complete','expiry',1795321970.8410938);
INSERT INTO "hooks" VALUES('expiring',1,'complete','accounting',1795321970.8572636);
INSERT INTO "hooks" VALUES('expiring',1,'complete','connect_to_job',1795321970.872939);
INSERT INTO "hooks" VALUES('expiring',1,'complete','ingress',1795321970.8888807);
INSERT INTO "hooks" VALUES('expiring',1,'complete','miscellaneous',1795321970.8965294);
INSERT INTO "hooks" VALUES('expiring',1,'complete','minikube',1795321970.9137254);
INSERT INTO "hooks" VALUES('expiring',1,'complete','cost_centre',1795321970.9210224);
INSERT INTO "hooks" VALUES('expiring',1,'complete','proxy',1795321970.9742627);
CREATE TABLE hubs (
	id VARCHAR(64) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	port INTEGER NOT NULL, 
	started_at DOUBLE NOT NULL, 
	seen_at DOUBLE NOT NULL, 
	CONSTRAINT pk_hubs PRIMARY KEY (id)
);
INSERT INTO "hubs" VALUES('df85e750831b1847','127.0.0.1',45789,1795321941.9891222,1795321972.385759);
CREATE TABLE job_labels (
	job_id VARCHAR(40) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	value VARCHAR(63) NOT NULL, 
	CONSTRAINT pk_job_labels PRIMARY KEY (job_id, name), 
	CONSTRAINT fk_job_labels_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "job_labels" VALUES('pair','cost-centre','c-pair');
INSERT INTO "job_labels" VALUES('pair','recorded','yes');
INSERT INTO "job_labels" VALUES('succeeded','cost-centre','c-succeeded');
INSERT INTO "job_labels" VALUES('succeeded','recorded','yes');
INSERT INTO "job_labels" VALUES('failed','cost-centre','c-failed');
INSERT INTO "job_labels" VALUES('failed','recorded','yes');
INSERT INTO "job_labels" VALUES('expired','cost-centre','c-expired');
INSERT INTO "job_labels" VALUES('expired','recorded','yes');
INSERT INTO "job_labels" VALUES('unfunded','cost-centre','c-unfunded');
INSERT INTO "job_labels" VALUES('unfunded','recorded','yes');
INSERT INTO "job_labels" VALUES('released','cost-centre','c-released');
INSERT INTO "job_labels" VALUES('released','recorded','yes');
INSERT INTO "job_labels" VALUES('web','cost-centre','c-web');
INSERT INTO "job_labels" VALUES('web','recorded','yes');
INSERT INTO "job_labels" VALUES('caller','cost-centre','c-caller');
INSERT INTO "job_labels" VALUES('caller','recorded','yes');
INSERT INTO "job_labels" VALUES('tasks','cost-centre','c-tasks');
INSERT INTO "job_labels" VALUES('tasks','recorded','yes');
INSERT INTO "job_labels" VALUES('resumed','cost-centre','c-resumed');
INSERT INTO "job_labels" VALUES('resumed','recorded','yes');
INSERT INTO "job_labels" VALUES('suspended','cost-centre','c-suspended');
INSERT INTO "job_labels" VALUES('suspended','recorded','yes');
INSERT INTO "job_labels" VALUES('resuming','cost-centre','c-resuming');
INSERT INTO "job_labels" VALUES('resuming','recorded','yes');
INSERT INTO "job_labels" VALUES('queued','cost-centre','c-queued');
INSERT INTO "job_labels" VALUES('queued','recorded','yes');
INSERT INTO "job_labels" VALUES('kept','cost-centre','c-kept');
INSERT INTO "job_labels" VALUES('kept','recorded','yes');
INSERT INTO "job_labels" VALUES('prepared','cost-centre','c-prepared');
INSERT INTO "job_labels" VALUES('prepared','recorded','yes');
INSERT INTO "job_labels" VALUES('restarting','cost-centre','c-restarting');
INSERT INTO "job_labels" VALUES('restarting','recorded','yes');
INSERT INTO "job_labels" VALUES('evicted','cost-centre','c-evicted');
INSERT INTO "job_labels" VALUES('evicted','recorded','yes');
INSERT INTO "job_labels" VALUES('between-start','cost-centre','c-between-start');
INSERT INTO "job_labels" VALUES('between-start','recorded','yes');
INSERT INTO "job_labels" VALUES('between-complete','cost-centre','c-between-complete');
INSERT INTO "job_labels" VALUES('between-complete','recorded','yes');
INSERT INTO "job_labels" VALUES('suspending','cost-centre','c-suspending');
INSERT INTO "job_labels" VALUES('suspending','recorded','yes');
INSERT INTO "job_labels" VALUES('canceling','cost-centre','c-canceling');
INSERT INTO "job_labels" VALUES('canceling','recorded','yes');
INSERT INTO "job_labels" VALUES('expiring','cost-centre','c-expiring');
INSERT INTO "job_labels" VALUES('expiring','recorded','yes');
INSERT INTO "job_labels" VALUES('accepted','cost-centre','c-accepted');
INSERT INTO "job_labels" VALUES('accepted','recorded','yes');
CREATE TABLE jobs (
	id VARCHAR(40) NOT NULL, 
	owner_user VARCHAR(255) NOT NULL, 
	owner_project VARCHAR(255), 
	namespace VARCHAR(63) NOT NULL, 
	spec JSON NOT NULL, 
	sealed BLOB, 
	fingerprint BLOB, 
	desired VARCHAR(16) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	reason VARCHAR(64), 
	message TEXT, 
	attempt INTEGER NOT NULL, 
	uid VARCHAR(64), 
	outcome VARCHAR(16), 
	created_at DOUBLE NOT NULL, 
	started_at DOUBLE, 
	finished_at DOUBLE, 
	revision BIGINT NOT NULL, queue VARCHAR(63), allocated_seconds DOUBLE, end_state VARCHAR(16), end_reason VARCHAR(64), end_message TEXT, renewal VARCHAR(16), stopping BOOLEAN DEFAULT 0 NOT NULL, product VARCHAR(63), price JSON, cpu DOUBLE DEFAULT '0' NOT NULL, memory DOUBLE DEFAULT '0' NOT NULL, gpu DOUBLE DEFAULT '0' NOT NULL, evictions INTEGER DEFAULT '0' NOT NULL, retries_used INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_jobs PRIMARY KEY (id)
);
INSERT INTO "jobs" VALUES('pair','ada',NULL,'jobs','{"id": "pair", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-pair", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "replicas": 2, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "policies": [{"action": "AbortJob", "event": "PodFailed"}]}',NULL,X'AF027B633E7149913C044BFFC54CA9965179C5C0D589CD439EDC7ABDC4D1E1EF','run','RUNNING',NULL,NULL,1,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',NULL,1795321924.4291844,1795321925.0,NULL,1,'default',NULL,NULL,NULL,NULL,NULL,0,NULL,'null',0.1,134217728.0,0.0,0,0);
INSERT INTO "jobs" VALUES('succeeded','ada',NULL,'jobs','{"id": "succeeded", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-succeeded", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "sleep 2"]}, "interactive": {"site": {"kind": "web", "port": 8000}}}',NULL,X'E2CA8FEA19FBA28D52F94F3F484EAFBE0EB27569482F4C5B4DBBD89AEDFE2820','run','SUCCESS','completed',NULL,1,'df1025ab-e995-4d58-bee1-b4a4a5acbb56','SUCCESS',1795321942.2223873,1795321942.2223873,1795321945.1672666,5,'default',NULL,'SUCCESS','completed',NULL,NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('failed','ada',NULL,'jobs','{"id": "failed", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-failed", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "exit 3"]}}',NULL,X'E3EB960BA3D189B64281F38D29E937EC5ADE7E302690D570895E89A056721495','run','FAILURE','exit_code','job 0 ended with exit code 3',1,'d1f090b9-cb13-403c-93a5-6ae3c1fe219c','FAILURE',1795321942.347578,1795321944.0,1795321944.5096762,7,'default',NULL,'FAILURE','exit_code','job 0 ended with exit code 3',NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('expired','ada',NULL,'jobs','{"id": "expired", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-expired", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "time_allocation_seconds": 1, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}',NULL,X'42126CAC059FBF3136C376295D44BF4C704018A0D4FF1B6BA66B75A22435AB16','ended','EXPIRED','expired','its time is over',1,'a0afd769-ddb0-4ba0-ab9f-886fa9a27c9c','EXPIRED',1795321942.4567027,1795321943.0,1795321945.1258483,18,'default',1.0,'EXPIRED','expired','its time is over',NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('unfunded','ada','sun','jobs','{"id": "unfunded", "owner": {"user": "ada", "project": "sun"}, "labels": {"cost-centre": "c-unfunded", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}',NULL,X'C3A25591B6D45046AE4CCAE409D6EF52888DDEF2BA1943E21C1E863D086DE1BC','ended','FAILURE','out_of_funds','there are no funds for it any more',1,'b6cb0b97-4145-47c7-90a8-9a065edce6f2','FAILURE',1795321942.503657,1795321943.0,1795321944.957185,13,'default',NULL,'FAILURE','out_of_funds','there are no funds for it any more',NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('released','ada',NULL,'jobs','{"id": "released", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-released", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; python3 -m http.server 8000 & wait"]}, "interactive": {"site": {"kind": "web", "port": 8000}}, "links": ["recorded-old-link"]}',NULL,X'416549BC9ECE0730BF8B8C0EA1ED18D43DAEBA412DAF94799C1E273CFFC3011F','ended','SUCCESS','asked','ended as asked',1,'dadc64af-40a3-4d08-b228-bfff38adac1d','SUCCESS',1795321942.6057663,1795321943.0,1795321945.0266883,14,'default',NULL,'SUCCESS','asked','ended as asked',NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('web','ada',NULL,'jobs','{"id": "web", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-web", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "time_allocation_seconds": 36000, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; python3 -m http.server 8000 & wait"]}, "parameters": {"pass": {"type": "secret"}, "greeting": {"type": "text", "value": "hello"}}, "interactive": {"site": {"kind": "web", "port": 8000}, "desk": {"kind": "vnc", "port": 5900, "password": {"parameter": "pass"}}}, "links": ["recorded-demo"]}',X'70D81464925B010712D9F323A786754EAF43D6B4E72B87E78AEACB6F347DFB2DCA939D89DD677104B0E79348CB36A2E2A7',X'A5E242F67DE87E74C8AC443CBB692262F6F1C1945058269E7F15619D5DE46DF9','run','RUNNING',NULL,NULL,1,'954025b5-e34f-40b6-a6be-78fc4e366855',NULL,1795321945.2263565,1795321945.2263565,NULL,41,'default',36600.0,NULL,NULL,NULL,NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('caller','ada',NULL,'jobs','{"id": "caller", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-caller", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "parameters": {"web": {"type": "peer", "job": "web", "hostname": "web"}}}',NULL,X'870A558370DC9A9EDEA9A1321E7497789BFE9B19FB9B31203FC395276B8A77E0','run','RUNNING',NULL,NULL,1,'728e3789-bee2-4d78-8b7c-e3c560c0bbbe',NULL,1795321945.5576875,1795321947.0,NULL,31,'default',NULL,NULL,NULL,NULL,NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('tasks','ada',NULL,'jobs','{"id": "tasks", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-tasks", "recorded": "yes"}, "tasks": [{"name": "head"}, {"name": "worker", "replicas": 2, "policies": [{"action": "RestartTask", "exit_code": 3}]}], "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "max_retry": 2}',NULL,X'4CC92820A6992F80B18ADCDBAED3C884488324C59B81EEE3902EB018A1F2FDDA','run','RUNNING',NULL,NULL,1,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',NULL,1795321945.5920844,1795321946.0,NULL,33,'default',NULL,NULL,NULL,NULL,NULL,0,NULL,'null',0.15000000000000002,201326592.0,0.0,0,0);
INSERT INTO "jobs" VALUES('resumed','ada',NULL,'jobs','{"id": "resumed", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-resumed", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}',NULL,X'9EFA8A0AE0A03433BED7251823B48CDE4F3B3CDA21DE88B360B89D74805DBDDE','run','RUNNING',NULL,NULL,2,'e3095306-0d14-4fb5-b66d-2726427a095c',NULL,1795321945.6173644,1795321947.0,NULL,40,'default',NULL,NULL,NULL,NULL,NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('suspended','ada',NULL,'jobs','{"id": "suspended", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-suspended", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "interactive": {"site": {"kind": "web", "port": 8000}}}',NULL,X'5A938251721B472D58EDBD47ADD2C156ADA944677AC9C6AA7D81201ED9301B30','suspended','SUSPENDED','asked','suspended as asked',1,'c5f23cef-2019-4f90-93f6-8b9587dba4d9',NULL,1795321945.6697516,1795321948.0,NULL,38,'default',NULL,NULL,NULL,NULL,NULL,1,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('resuming','ada',NULL,'jobs','{"id": "resuming", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-resuming", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}',NULL,X'AEBC0B55F37CED96BB3CF5E1606AF0DD476C3E3D28A7F8A4488948CB9AAE6762','run','IN_QUEUE','paused','an upgrade',2,NULL,NULL,1795321945.7133696,1795321946.0,NULL,70,'default',NULL,NULL,NULL,NULL,NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('queued','ada',NULL,'jobs','{"id": "queued", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-queued", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "63900m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "interactive": {"site": {"kind": "web", "port": 8000}}}',NULL,X'0F787373790D099419CB4B4025C12F5F549FEFE2E4E5EBF9F27ED7B54B9CB71B','run','IN_QUEUE','queued','waiting in the queue',1,'ac729ff4-dc53-433b-8f82-489ed957f4e6',NULL,1795321954.750473,NULL,NULL,42,'default',NULL,NULL,NULL,NULL,NULL,0,NULL,'null',63.9,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('kept','ada',NULL,'jobs','{"id": "kept", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-kept", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}',NULL,X'A157CD8ED2C50B208787A270F44C3E7AEE4194E0D52C14D8B99202F2CEF19074','suspended','SUSPENDED','asked','suspended as asked',1,NULL,NULL,1795321955.4358919,NULL,NULL,69,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('prepared','ada',NULL,'jobs','{"id": "prepared", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-prepared", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "parameters": {"kept": {"type": "peer", "job": "kept", "hostname": "kept", "ports": [9000]}, "token": {"type": "secret"}}}',X'323C74A6549A0C1DE5E085B295053C0474576E1F4A03D5B27B181205BE405EAC42331747F07A1331B01245DC7AC499D1713B6295',X'FAE5FDDAD4BD14C577BD96BB43632E4610CD1EACC72AF2ADD378BA5DFAED8B19','run','IN_QUEUE','paused','an upgrade',1,NULL,NULL,1795321955.5303853,NULL,NULL,69,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('restarting','ada',NULL,'jobs','{"id": "restarting", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-restarting", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "replicas": 2, "invocation": {"command": ["sleep", "3600"]}, "policies": [{"action": "RestartJob", "event": "PodFailed"}], "max_retry": 3}',NULL,X'D13CA7CF5265A7C8299AB008BCBFCC3B60B800506BA33298E603E04BAA181114','run','IN_QUEUE','restarting','starting again',1,'a5606c94-7ba2-4e2c-b707-26718c43d735',NULL,1795321955.6172018,1795321958.0,NULL,61,'default',NULL,NULL,NULL,NULL,NULL,0,NULL,'null',0.1,134217728.0,0.0,0,0);
INSERT INTO "jobs" VALUES('evicted','ada',NULL,'jobs','{"id": "evicted", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-evicted", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}',NULL,X'463C330561C7D1E682B26E2615802BF25734A98D7238EEED00AAA789BDA4583F','run','IN_QUEUE','paused','an upgrade',2,NULL,NULL,1795321955.6520813,1795321960.0,NULL,62,'default',NULL,NULL,NULL,NULL,NULL,0,NULL,'null',0.05,67108864.0,0.0,1,0);
INSERT INTO "jobs" VALUES('between-start','ada',NULL,'jobs','{"id": "between-start", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-between-start", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}',NULL,X'1DAFC4376B73BE2592057E473D7521505159D4948F6206D4958A87C3ADEC8703','run','RUNNING',NULL,NULL,1,'be9c98af-6a0b-423b-88f4-1336275e86d9',NULL,1795321955.7277687,1795321963.0,NULL,63,'default',NULL,NULL,NULL,NULL,NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('between-complete','ada',NULL,'jobs','{"id": "between-complete", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-between-complete", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}',NULL,X'64A388D5C548C6B480391C35772F0F47C3ACFD6C43033CAAC973ABA9F0A229F5','ended','CANCELING','asked','ended as asked',1,'87eeea75-4a99-4c5d-8b64-1b8026b6f619','SUCCESS',1795321955.837452,1795321960.0,NULL,68,'default',NULL,'SUCCESS','asked','ended as asked',NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('suspending','ada',NULL,'jobs','{"id": "suspending", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-suspending", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sleep", "3600"]}}',NULL,X'22A9EEF5B003F19B0EAE21188CBF04652CA27FDE515D669E96428DA64AE3064E','suspended','RUNNING','suspending','being suspended',1,'6f11d455-3d74-4b48-a697-8c52ac938c7b',NULL,1795321956.0167005,1795321963.0,NULL,74,'default',NULL,NULL,NULL,NULL,NULL,1,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('canceling','ada',NULL,'jobs','{"id": "canceling", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-canceling", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sleep", "3600"]}}',NULL,X'F7C9A5F2D4789179962CF0046E247C114EE56FB03F2F1F2A46471CB3E08439F6','ended','CANCELING','asked','ended as asked',1,'8d936c11-3a44-43b8-b4b5-1fdab551712d','SUCCESS',1795321956.201467,1795321959.0,NULL,75,'default',NULL,'SUCCESS','asked','ended as asked',NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('expiring','ada',NULL,'jobs','{"id": "expiring", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-expiring", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "time_allocation_seconds": 12, "invocation": {"command": ["sleep", "3600"]}}',NULL,X'27809A5B3951A90697208ECCAFED463C3CD564EFA59615818C37FC88DC30CE00','ended','CANCELING','expired','its time is over',1,'0ade9590-2704-4afb-89cb-903bd1bc7206','EXPIRED',1795321956.4180746,1795321958.0,NULL,77,'default',12.0,'EXPIRED','expired','its time is over',NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
INSERT INTO "jobs" VALUES('accepted','ada',NULL,'jobs','{"id": "accepted", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-accepted", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; python3 -m http.server 8000 & wait"]}, "parameters": {"token": {"type": "secret"}}, "interactive": {"site": {"kind": "web", "port": 8000}}, "links": ["recorded-later"]}',X'622DB1F120AB7C10BCCA1BAF7D26B934736F3501AB6DE20B372D7E0C340CBF8200B5171CF292D267FCE0E63DBFF91267E259233F',X'3D30F0AF783938CE2E7C6F8B09DA38BFFEB7A6719EFF966B24F01CC08852A427','run','IN_QUEUE','paused','an upgrade',1,NULL,NULL,1795321967.4592547,NULL,NULL,72,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,'null',0.05,67108864.0,0.0,0,0);
CREATE TABLE leadership (
	id INTEGER NOT NULL, 
	term BIGINT NOT NULL, 
	holder VARCHAR(255) NOT NULL, 
	seen_at DOUBLE NOT NULL, 
	CONSTRAINT pk_leadership PRIMARY KEY (id)
);
INSERT INTO "leadership" VALUES(1,3,'vm:16740',1795321972.4933922);
CREATE TABLE links (
	name VARCHAR(63) NOT NULL, 
	owner TEXT NOT NULL, 
	job_id VARCHAR(40), 
	released_at DOUBLE, 
	CONSTRAINT pk_links PRIMARY KEY (name)
);
INSERT INTO "links" VALUES('recorded-old-link','{"user":"ada"}',NULL,1795321945.0150077);
INSERT INTO "links" VALUES('recorded-demo','{"user":"ada"}','web',NULL);
INSERT INTO "links" VALUES('recorded-later','{"user":"ada"}','accepted',NULL);
CREATE TABLE maintenance (
	id INTEGER NOT NULL, 
	mode VARCHAR(16) NOT NULL, 
	message TEXT, 
	since DOUBLE NOT NULL, 
	CONSTRAINT pk_maintenance PRIMARY KEY (id)
);
INSERT INTO "maintenance" VALUES(1,'paused','an upgrade',1795321966.5696814);
CREATE TABLE "position" (
	id INTEGER NOT NULL, 
	identity VARCHAR(64) NOT NULL, 
	revision BIGINT NOT NULL, 
	epoch VARCHAR(64), 
	seq BIGINT NOT NULL, 
	CONSTRAINT pk_position PRIMARY KEY (id)
);
INSERT INTO "position" VALUES(1,'e4d5e47c0fed3c32348b88d5153a5c46',78,'0f9dc4722f14bdf5913f206ddf9e6ea7',30);
CREATE TABLE revocations (
	member VARCHAR(512) NOT NULL, 
	at DOUBLE NOT NULL, 
	sid VARCHAR(26), 
	jti VARCHAR(128), 
	sub VARCHAR(255), 
	kid VARCHAR(255), 
	revision BIGINT NOT NULL, 
	CONSTRAINT pk_revocations PRIMARY KEY (member)
);
INSERT INTO "revocations" VALUES('jti:recorded-jti',1795321955.172,'tijvx5kd7qfiyfs7eh2tn7fr3q','recorded-jti',NULL,NULL,50);
INSERT INTO "revocations" VALUES('sub:tijvx5kd7qfiyfs7eh2tn7fr3q:mallory',1795321955.214,'tijvx5kd7qfiyfs7eh2tn7fr3q',NULL,'mallory',NULL,51);
INSERT INTO "revocations" VALUES('all:alqwtsji52z2w7o2cn6err35pq',1795321955.241,'alqwtsji52z2w7o2cn6err35pq',NULL,NULL,NULL,52);
INSERT INTO "revocations" VALUES('kid:recorded-leaked-key',1795321955.264,NULL,NULL,NULL,'recorded-leaked-key',53);
CREATE TABLE runs (
	job_id VARCHAR(40) NOT NULL, 
	pod_uid VARCHAR(64) NOT NULL, 
	attempt INTEGER NOT NULL, 
	rank INTEGER NOT NULL, 
	task VARCHAR(63) NOT NULL, 
	"index" INTEGER NOT NULL, 
	pod VARCHAR(253) NOT NULL, 
	node VARCHAR(253) NOT NULL, 
	phase VARCHAR(16) NOT NULL, 
	reason VARCHAR(64) NOT NULL, 
	message TEXT NOT NULL, 
	exit_code INTEGER, 
	signal INTEGER, 
	seen_at DOUBLE NOT NULL, 
	started_at DOUBLE, 
	ended_at DOUBLE, 
	CONSTRAINT pk_runs PRIMARY KEY (job_id, pod_uid), 
	CONSTRAINT fk_runs_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "runs" VALUES('pair','87b6c604-af4c-43c2-8171-b15743e15142',1,0,'job',0,'j-pair-job-0','embedded','Running','','',NULL,NULL,1795321925.414652,1795321925.0,NULL);
INSERT INTO "runs" VALUES('pair','89fa73e6-52ae-45f5-8f4e-be8ef9c154e3',1,1,'job',1,'j-pair-job-1','embedded','Running','','',NULL,NULL,1795321925.4294088,1795321926.0,NULL);
INSERT INTO "runs" VALUES('succeeded','e9b8d0a2-299f-4c17-b715-58bcfe57c83b',1,0,'job',0,'j-succeeded-job-0','embedded','Succeeded','Completed','',0,0,1795321942.4225664,1795321942.0,1795321944.0);
INSERT INTO "runs" VALUES('failed','a02c7696-03dd-417c-998e-2c641a9b82bf',1,0,'job',0,'j-failed-job-0','embedded','Failed','Error','',3,0,1795321942.598908,1795321944.0,1795321944.0);
INSERT INTO "runs" VALUES('expired','5c521d73-ff11-49a1-8144-55da426d7756',1,0,'job',0,'j-expired-job-0','embedded','Succeeded','Completed','',0,0,1795321942.69054,1795321943.0,1795321944.0);
INSERT INTO "runs" VALUES('unfunded','c36688c5-1d5c-48ec-8f09-a2cfe5e46270',1,0,'job',0,'j-unfunded-job-0','embedded','Succeeded','Completed','',0,0,1795321942.8270617,1795321943.0,1795321944.0);
INSERT INTO "runs" VALUES('released','d7998300-c995-4e9b-80c9-60bf4042860a',1,0,'job',0,'j-released-job-0','embedded','Succeeded','Completed','',0,0,1795321942.9465647,1795321943.0,1795321944.0);
INSERT INTO "runs" VALUES('web','3345d980-0e7e-4d60-956a-7dba7cc6f20a',1,0,'job',0,'j-web-job-0','embedded','Running','','',NULL,NULL,1795321945.3025324,1795321945.0,NULL);
INSERT INTO "runs" VALUES('tasks','4f780c74-ead1-47ad-a656-43cf2c4f7cb6',1,0,'head',0,'j-tasks-head-0','embedded','Running','','',NULL,NULL,1795321945.711523,1795321946.0,NULL);
INSERT INTO "runs" VALUES('tasks','fb116d1e-58d9-49a2-b92d-d07a39119540',1,1,'worker',0,'j-tasks-worker-0','embedded','Running','','',NULL,NULL,1795321945.7319787,1795321946.0,NULL);
INSERT INTO "runs" VALUES('tasks','ac50a1bb-2ec6-4967-a5da-7b4aafe1795f',1,2,'worker',1,'j-tasks-worker-1','embedded','Running','','',NULL,NULL,1795321945.7319796,1795321946.0,NULL);
INSERT INTO "runs" VALUES('resumed','a272f2bd-7188-471e-b687-6b46a4c94d38',1,0,'job',0,'j-resumed-job-0','embedded','Succeeded','Completed','',0,0,1795321945.8285835,1795321947.0,1795321950.0);
INSERT INTO "runs" VALUES('suspended','e1df9723-d108-4043-8d06-66e602a77422',1,0,'job',0,'j-suspended-job-0','embedded','Succeeded','Completed','',0,0,1795321945.9318233,1795321948.0,1795321950.0);
INSERT INTO "runs" VALUES('resuming','436ddfa0-76a9-4a36-aedf-e2ce0bf800c9',1,0,'job',0,'j-resuming-job-0','embedded','Succeeded','Completed','',0,0,1795321945.959995,1795321946.0,1795321950.0);
INSERT INTO "runs" VALUES('caller','92a1df75-75f4-4611-8d8a-5ddd6c7b5b36',1,0,'job',0,'j-caller-job-0','embedded','Running','','',NULL,NULL,1795321946.4636528,1795321947.0,NULL);
INSERT INTO "runs" VALUES('resumed','d5ad9402-c4a9-4cf1-8c17-ea7723be21dd',2,0,'job',0,'j-resumed-job-0','embedded','Running','','',NULL,NULL,1795321952.918455,1795321954.0,NULL);
INSERT INTO "runs" VALUES('restarting','2031d664-0b83-49ea-9287-a88e0528921c',1,0,'job',0,'j-restarting-job-0','embedded','Failed','','',NULL,NULL,1795321955.8609781,1795321958.0,1795321967.9055603);
INSERT INTO "runs" VALUES('restarting','1aaa03d7-0085-4c48-8c96-b8b4c8ef0e22',1,1,'job',1,'j-restarting-job-1','embedded','Running','','',NULL,NULL,1795321955.8991215,1795321964.0,NULL);
INSERT INTO "runs" VALUES('between-start','5b2f5670-a53d-406c-a74c-b091e3a23176',1,0,'job',0,'j-between-start-job-0','embedded','Running','','',NULL,NULL,1795321956.070529,1795321963.0,NULL);
INSERT INTO "runs" VALUES('evicted','a70bb738-590a-4a6a-8620-f31fbbf4e0cb',1,0,'job',0,'j-evicted-job-0','embedded','Failed','Evicted','the node was low on disk',NULL,NULL,1795321956.070792,1795321960.0,1795321966.6297383);
INSERT INTO "runs" VALUES('between-complete','602a20cb-e24f-47e1-8d4d-28dd79a9f5f2',1,0,'job',0,'j-between-complete-job-0','embedded','Running','','',NULL,NULL,1795321956.3355436,1795321960.0,NULL);
INSERT INTO "runs" VALUES('suspending','4eaa1fba-2f8d-4061-a76f-6cd82bf77164',1,0,'job',0,'j-suspending-job-0','embedded','Running','','',NULL,NULL,1795321956.590708,1795321963.0,NULL);
INSERT INTO "runs" VALUES('canceling','08a2d815-bea1-4be4-9fc7-d87c99b16c51',1,0,'job',0,'j-canceling-job-0','embedded','Running','','',NULL,NULL,1795321956.8984573,1795321959.0,NULL);
INSERT INTO "runs" VALUES('expiring','74231168-05fc-40bd-8540-61ec799210ec',1,0,'job',0,'j-expiring-job-0','embedded','Running','','',NULL,NULL,1795321957.1613662,1795321958.0,NULL);
CREATE TABLE sessions (
	sid VARCHAR(26) NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	rank INTEGER NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	endpoint VARCHAR(63), 
	port INTEGER, 
	base_path VARCHAR(1024) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	ended_at DOUBLE, 
	end_reason VARCHAR(64), 
	hub_id VARCHAR(64), 
	pod VARCHAR(253), 
	pod_uid VARCHAR(64), 
	revision BIGINT NOT NULL, links JSON, 
	CONSTRAINT pk_sessions PRIMARY KEY (sid), 
	CONSTRAINT fk_sessions_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "sessions" VALUES('twmmqzrkj3r7ip3wvlx2o3qqsy','succeeded',0,'web','site',8000,'/',1795321942.2465193,1795321945.138186,'job ended',NULL,NULL,NULL,25,'null');
INSERT INTO "sessions" VALUES('2coc33b4jnxv4klmqznsmy2age','released',0,'web','site',8000,'/',1795321942.6057663,1795321943.7741477,'job ended',NULL,NULL,NULL,17,'["recorded-old-link"]');
INSERT INTO "sessions" VALUES('s3pbsgfokg52ro2k5zi4czbt6u','web',0,'web','site',8000,'/',1795321945.2263565,NULL,NULL,NULL,NULL,NULL,29,'["recorded-demo"]');
INSERT INTO "sessions" VALUES('6s72du7zx7ao4s2v7blnvzqxje','web',0,'web','site',8000,'/',1795321954.9335206,NULL,NULL,NULL,NULL,NULL,43,'null');
INSERT INTO "sessions" VALUES('tijvx5kd7qfiyfs7eh2tn7fr3q','web',0,'web','site',8000,'/',1795321954.990235,NULL,NULL,NULL,NULL,NULL,44,'null');
INSERT INTO "sessions" VALUES('alqwtsji52z2w7o2cn6err35pq','web',0,'vnc','desk',5900,'/',1795321955.0453823,NULL,NULL,NULL,NULL,NULL,45,'null');
INSERT INTO "sessions" VALUES('dem7yjtgpt2dtt7ummsjgebhdy','web',0,'terminal',NULL,NULL,'/',1795321955.085512,NULL,NULL,'df85e750831b1847','j-web-job-0','3345d980-0e7e-4d60-956a-7dba7cc6f20a',46,'null');
INSERT INTO "sessions" VALUES('attricwkqsvnloyhqsy7eomsey','queued',0,'web','site',8000,'/',1795321955.12363,NULL,NULL,NULL,NULL,NULL,47,'null');
INSERT INTO "sessions" VALUES('kitso2izph3im55lnk4blyglma','suspended',0,'web','site',8000,'/',1795321955.1369877,NULL,NULL,NULL,NULL,NULL,48,'null');
INSERT INTO "sessions" VALUES('bwgxqo4cns7abwnfiaudfh4xs4','web',0,'web','site',8000,'/',1795321955.1607854,1795321955.3131661,'ended',NULL,NULL,NULL,54,'null');
INSERT INTO "sessions" VALUES('5fn7xfgfgbvhw3pipb3ymgm5na','accepted',0,'web','site',8000,'/',1795321967.4592547,NULL,NULL,NULL,NULL,NULL,73,'["recorded-later"]');
CREATE TABLE tombstones (
	job_id VARCHAR(40) NOT NULL, 
	uid VARCHAR(64) NOT NULL, 
	at DOUBLE NOT NULL, 
	CONSTRAINT pk_tombstones PRIMARY KEY (job_id, uid)
);
INSERT INTO "tombstones" VALUES('forgotten','0326d7c1-2738-4697-bf9c-52c2453ba3f7',1795321932.8198302);
CREATE TABLE transitions (
	id INTEGER NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	attempt INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	reason VARCHAR(64), 
	message TEXT, exits JSON, 
	CONSTRAINT pk_transitions PRIMARY KEY (id), 
	CONSTRAINT fk_transitions_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "transitions" VALUES(1,'pair',1,1795321924.4291844,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(3,'pair',1,1795321924.4878201,'IN_QUEUE','preparing','the namespace jobs is being prepared','null');
INSERT INTO "transitions" VALUES(5,'pair',1,1795321925.3350642,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(8,'pair',1,1795321925.5189517,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(11,'pair',1,1795321934.001285,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(12,'succeeded',1,1795321942.2223873,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(13,'failed',1,1795321942.347578,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(14,'succeeded',1,1795321942.39382,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(15,'expired',1,1795321942.4567027,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(16,'succeeded',1,1795321942.4670448,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(17,'unfunded',1,1795321942.503657,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(18,'failed',1,1795321942.5245104,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(19,'released',1,1795321942.6057663,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(20,'expired',1,1795321942.6721168,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(21,'failed',1,1795321942.7251213,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(22,'expired',1,1795321942.7374077,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(23,'unfunded',1,1795321942.806376,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(24,'unfunded',1,1795321942.8775337,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(25,'released',1,1795321942.9320977,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(26,'released',1,1795321942.9720716,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(27,'succeeded',1,1795321943.090438,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(28,'expired',1,1795321943.3430154,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(29,'unfunded',1,1795321943.6229086,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(30,'released',1,1795321943.6264129,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(31,'unfunded',1,1795321943.658873,'CANCELING','out_of_funds','there are no funds for it any more','null');
INSERT INTO "transitions" VALUES(32,'released',1,1795321943.6822274,'CANCELING','asked','ended as asked','null');
INSERT INTO "transitions" VALUES(33,'expired',1,1795321944.1659229,'CANCELING','expired','its time is over','null');
INSERT INTO "transitions" VALUES(34,'failed',1,1795321944.307539,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(35,'failed',1,1795321944.5101414,'FAILURE','exit_code','job 0 ended with exit code 3','[{"rank": 0, "exit_code": 3, "signal": 0, "reason": "Error", "node": "embedded"}]');
INSERT INTO "transitions" VALUES(36,'unfunded',1,1795321944.9578452,'FAILURE','out_of_funds','there are no funds for it any more','[{"rank": 0, "exit_code": 0, "signal": 0, "reason": "Completed", "node": "embedded"}]');
INSERT INTO "transitions" VALUES(37,'released',1,1795321945.027148,'SUCCESS','asked','ended as asked','[{"rank": 0, "exit_code": 0, "signal": 0, "reason": "Completed", "node": "embedded"}]');
INSERT INTO "transitions" VALUES(38,'expired',1,1795321945.1270597,'EXPIRED','expired','its time is over','[{"rank": 0, "exit_code": 0, "signal": 0, "reason": "Completed", "node": "embedded"}]');
INSERT INTO "transitions" VALUES(39,'succeeded',1,1795321945.167733,'SUCCESS','completed',NULL,'[{"rank": 0, "exit_code": 0, "signal": 0, "reason": "Completed", "node": "embedded"}]');
INSERT INTO "transitions" VALUES(40,'web',1,1795321945.2263565,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(41,'web',1,1795321945.2778294,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(42,'web',1,1795321945.325745,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(43,'web',1,1795321945.5069106,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(44,'caller',1,1795321945.5576875,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(45,'caller',1,1795321945.5845706,'IN_QUEUE','preparing','waiting for the address of the job web','null');
INSERT INTO "transitions" VALUES(46,'tasks',1,1795321945.5920844,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(47,'resumed',1,1795321945.6173644,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(48,'suspended',1,1795321945.6697516,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(49,'tasks',1,1795321945.677617,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(50,'resuming',1,1795321945.7133696,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(51,'resumed',1,1795321945.7785668,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(52,'tasks',1,1795321945.8339765,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(53,'suspended',1,1795321945.8594704,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(54,'resuming',1,1795321945.8882847,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(55,'resumed',1,1795321945.9089746,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(56,'suspended',1,1795321945.9557812,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(57,'resuming',1,1795321946.0009153,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(58,'caller',1,1795321946.4210927,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(59,'caller',1,1795321946.5027869,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(60,'resuming',1,1795321946.9999158,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(61,'tasks',1,1795321947.761424,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(62,'caller',1,1795321947.972107,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(63,'resumed',1,1795321948.4173808,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(64,'suspended',1,1795321948.7777653,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(65,'resumed',1,1795321948.9048445,'RUNNING','suspending','being suspended','null');
INSERT INTO "transitions" VALUES(66,'resuming',1,1795321948.920861,'RUNNING','suspending','being suspended','null');
INSERT INTO "transitions" VALUES(67,'suspended',1,1795321948.930489,'RUNNING','suspending','being suspended','null');
INSERT INTO "transitions" VALUES(68,'resumed',1,1795321952.1092055,'SUSPENDED','asked','suspended as asked','null');
INSERT INTO "transitions" VALUES(69,'resuming',1,1795321952.1342425,'SUSPENDED','asked','suspended as asked','null');
INSERT INTO "transitions" VALUES(70,'suspended',1,1795321952.6611576,'SUSPENDED','asked','suspended as asked','null');
INSERT INTO "transitions" VALUES(71,'resumed',1,1795321952.7241662,'IN_QUEUE','resumed','resumed, and submitted again','null');
INSERT INTO "transitions" VALUES(72,'resumed',2,1795321952.7733347,'IN_QUEUE','resumed','resumed, and submitted again','null');
INSERT INTO "transitions" VALUES(73,'resumed',2,1795321952.8500092,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(74,'resumed',2,1795321952.9829988,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(75,'resumed',2,1795321954.6213036,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(76,'queued',1,1795321954.750473,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(77,'queued',1,1795321954.8917737,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(78,'kept',1,1795321955.4358919,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(79,'kept',1,1795321955.457404,'SUSPENDED','asked','suspended as asked','null');
INSERT INTO "transitions" VALUES(80,'prepared',1,1795321955.5303853,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(81,'prepared',1,1795321955.562673,'IN_QUEUE','preparing','waiting for the address of the job kept','null');
INSERT INTO "transitions" VALUES(82,'restarting',1,1795321955.6172018,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(83,'evicted',1,1795321955.6520813,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(84,'between-start',1,1795321955.7277687,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(85,'restarting',1,1795321955.7726796,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(86,'between-complete',1,1795321955.837452,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(87,'evicted',1,1795321955.924233,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(88,'between-start',1,1795321955.9546068,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(89,'suspending',1,1795321956.0167005,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(90,'canceling',1,1795321956.201467,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(91,'between-start',1,1795321956.2276518,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(92,'between-complete',1,1795321956.2931352,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(93,'restarting',1,1795321956.3607783,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(94,'expiring',1,1795321956.4180746,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(95,'suspending',1,1795321956.525508,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(96,'evicted',1,1795321956.5919192,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(97,'between-complete',1,1795321956.7217677,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(98,'canceling',1,1795321956.8436,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(99,'suspending',1,1795321956.969626,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(100,'expiring',1,1795321957.116801,'IN_QUEUE','queued','waiting in the queue','null');
INSERT INTO "transitions" VALUES(101,'canceling',1,1795321957.1655064,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(102,'expiring',1,1795321957.2336311,'IN_QUEUE','preparing','preparing the container','null');
INSERT INTO "transitions" VALUES(103,'expiring',1,1795321959.7012024,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(104,'canceling',1,1795321960.1682394,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(105,'between-complete',1,1795321961.7348092,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(106,'evicted',1,1795321961.7672865,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(107,'between-start',1,1795321964.7245414,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(108,'suspending',1,1795321964.7904212,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(109,'restarting',1,1795321966.361098,'RUNNING',NULL,NULL,'null');
INSERT INTO "transitions" VALUES(110,'between-complete',1,1795321966.4866495,'CANCELING','asked','ended as asked','null');
INSERT INTO "transitions" VALUES(111,'evicted',1,1795321966.7817984,'IN_QUEUE','evicted','job 0 was evicted: the node was low on disk; submitted again','null');
INSERT INTO "transitions" VALUES(112,'evicted',2,1795321966.9502914,'IN_QUEUE','evicted','job 0 was evicted: the node was low on disk; submitted again','null');
INSERT INTO "transitions" VALUES(113,'evicted',2,1795321967.0131752,'IN_QUEUE','paused','an upgrade','null');
INSERT INTO "transitions" VALUES(114,'prepared',1,1795321967.042613,'IN_QUEUE','paused','an upgrade','null');
INSERT INTO "transitions" VALUES(115,'resuming',1,1795321967.2026014,'IN_QUEUE','resumed','resumed, and submitted again','null');
INSERT INTO "transitions" VALUES(116,'resuming',2,1795321967.3491573,'IN_QUEUE','resumed','resumed, and submitted again','null');
INSERT INTO "transitions" VALUES(117,'resuming',2,1795321967.3694806,'IN_QUEUE','paused','an upgrade','null');
INSERT INTO "transitions" VALUES(118,'accepted',1,1795321967.4592547,'IN_QUEUE','submitting','being submitted','null');
INSERT INTO "transitions" VALUES(119,'accepted',1,1795321967.5535526,'IN_QUEUE','paused','an upgrade','null');
INSERT INTO "transitions" VALUES(120,'suspending',1,1795321967.7160916,'RUNNING','suspending','being suspended','null');
INSERT INTO "transitions" VALUES(121,'canceling',1,1795321967.7952986,'CANCELING','asked','ended as asked','null');
INSERT INTO "transitions" VALUES(122,'restarting',1,1795321967.9616501,'IN_QUEUE','restarting','starting again','null');
INSERT INTO "transitions" VALUES(123,'expiring',1,1795321970.5156999,'CANCELING','expired','its time is over','null');
CREATE TABLE usage (
	id BIGINT NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	owner_user VARCHAR(255) NOT NULL, 
	owner_project VARCHAR(255), 
	uid VARCHAR(64) NOT NULL, 
	attempt INTEGER NOT NULL, 
	rank INTEGER NOT NULL, 
	period INTEGER NOT NULL, 
	until DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	final BOOLEAN NOT NULL, 
	product VARCHAR(63), 
	price JSON, 
	resources JSON NOT NULL, 
	at DOUBLE NOT NULL, 
	CONSTRAINT pk_usage PRIMARY KEY (id), 
	CONSTRAINT uq_usage_uid UNIQUE (uid, rank, period)
);
INSERT INTO "usage" VALUES(1,'forgotten','ada',NULL,'0326d7c1-2738-4697-bf9c-52c2453ba3f7',1,0,0,1795321926.0,1.0,1,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321926.2108333);
INSERT INTO "usage" VALUES(2,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,0,0,1795321930.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321934.0532436);
INSERT INTO "usage" VALUES(3,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,1,0,1795321930.0,4.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321934.0534005);
INSERT INTO "usage" VALUES(4,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,0,1,1795321935.0,10.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321942.1702464);
INSERT INTO "usage" VALUES(5,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,0,2,1795321940.0,15.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321942.1703672);
INSERT INTO "usage" VALUES(6,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,1,1,1795321935.0,9.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321942.1704357);
INSERT INTO "usage" VALUES(7,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,1,2,1795321940.0,14.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321942.1704867);
INSERT INTO "usage" VALUES(8,'failed','ada',NULL,'d1f090b9-cb13-403c-93a5-6ae3c1fe219c',1,0,0,1795321944.0,0.0,1,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321944.4999418);
INSERT INTO "usage" VALUES(9,'unfunded','ada','sun','b6cb0b97-4145-47c7-90a8-9a065edce6f2',1,0,0,1795321944.0,1.0,1,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321944.9331644);
INSERT INTO "usage" VALUES(10,'released','ada',NULL,'dadc64af-40a3-4d08-b228-bfff38adac1d',1,0,0,1795321944.0,1.0,1,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321945.0123315);
INSERT INTO "usage" VALUES(11,'expired','ada',NULL,'a0afd769-ddb0-4ba0-ab9f-886fa9a27c9c',1,0,0,1795321944.0,1.0,1,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321945.0478332);
INSERT INTO "usage" VALUES(12,'succeeded','ada',NULL,'df1025ab-e995-4d58-bee1-b4a4a5acbb56',1,0,0,1795321944.0,2.0,1,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321945.151374);
INSERT INTO "usage" VALUES(13,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,0,3,1795321945.0,20.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321945.1609497);
INSERT INTO "usage" VALUES(14,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,1,3,1795321945.0,19.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321945.160994);
INSERT INTO "usage" VALUES(15,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,0,4,1795321950.0,25.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321950.2587419);
INSERT INTO "usage" VALUES(16,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,1,4,1795321950.0,24.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321950.258824);
INSERT INTO "usage" VALUES(17,'web','ada',NULL,'954025b5-e34f-40b6-a6be-78fc4e366855',1,0,0,1795321950.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321950.2715414);
INSERT INTO "usage" VALUES(18,'resuming','ada',NULL,'f0aeabb6-c7b3-46a3-925a-815357035d77',1,0,0,1795321951.0,4.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321951.25039);
INSERT INTO "usage" VALUES(19,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,0,0,1795321951.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321951.2747254);
INSERT INTO "usage" VALUES(20,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,1,0,1795321951.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321951.2747808);
INSERT INTO "usage" VALUES(21,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,2,0,1795321951.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321951.274815);
INSERT INTO "usage" VALUES(22,'caller','ada',NULL,'728e3789-bee2-4d78-8b7c-e3c560c0bbbe',1,0,0,1795321952.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321952.2595403);
INSERT INTO "usage" VALUES(23,'resumed','ada',NULL,'caa67fb1-9ad5-436c-a6fc-c4026264afcd',1,0,0,1795321952.0,3.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321952.2984245);
INSERT INTO "usage" VALUES(24,'resumed','ada',NULL,'caa67fb1-9ad5-436c-a6fc-c4026264afcd',1,0,1,1795321950.0,3.0,1,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321953.2680733);
INSERT INTO "usage" VALUES(25,'suspended','ada',NULL,'c5f23cef-2019-4f90-93f6-8b9587dba4d9',1,0,0,1795321953.0,2.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321953.3078437);
INSERT INTO "usage" VALUES(26,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,0,5,1795321955.0,30.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321955.2996404);
INSERT INTO "usage" VALUES(27,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,1,5,1795321955.0,29.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321955.2997704);
INSERT INTO "usage" VALUES(28,'web','ada',NULL,'954025b5-e34f-40b6-a6be-78fc4e366855',1,0,1,1795321955.0,10.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321955.350716);
INSERT INTO "usage" VALUES(29,'resuming','ada',NULL,'f0aeabb6-c7b3-46a3-925a-815357035d77',1,0,1,1795321956.0,4.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321956.4478605);
INSERT INTO "usage" VALUES(30,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,0,1,1795321956.0,10.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321956.6914396);
INSERT INTO "usage" VALUES(31,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,1,1,1795321956.0,10.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321956.691556);
INSERT INTO "usage" VALUES(32,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,2,1,1795321956.0,10.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321956.6916142);
INSERT INTO "usage" VALUES(33,'caller','ada',NULL,'728e3789-bee2-4d78-8b7c-e3c560c0bbbe',1,0,1,1795321957.0,10.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321957.430929);
INSERT INTO "usage" VALUES(34,'suspended','ada',NULL,'c5f23cef-2019-4f90-93f6-8b9587dba4d9',1,0,1,1795321958.0,2.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321958.4390945);
INSERT INTO "usage" VALUES(35,'resumed','ada',NULL,'e3095306-0d14-4fb5-b66d-2726427a095c',2,0,0,1795321959.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321959.4423609);
INSERT INTO "usage" VALUES(36,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,0,6,1795321960.0,35.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321960.4510775);
INSERT INTO "usage" VALUES(37,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,1,6,1795321960.0,34.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321960.4511561);
INSERT INTO "usage" VALUES(38,'web','ada',NULL,'954025b5-e34f-40b6-a6be-78fc4e366855',1,0,2,1795321960.0,15.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321960.4922013);
INSERT INTO "usage" VALUES(39,'resuming','ada',NULL,'f0aeabb6-c7b3-46a3-925a-815357035d77',1,0,2,1795321961.0,4.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321961.4546516);
INSERT INTO "usage" VALUES(40,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,0,2,1795321961.0,15.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321961.469127);
INSERT INTO "usage" VALUES(41,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,1,2,1795321961.0,15.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321961.4692855);
INSERT INTO "usage" VALUES(42,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,2,2,1795321961.0,15.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321961.469362);
INSERT INTO "usage" VALUES(43,'caller','ada',NULL,'728e3789-bee2-4d78-8b7c-e3c560c0bbbe',1,0,2,1795321962.0,15.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321962.4256275);
INSERT INTO "usage" VALUES(44,'expiring','ada',NULL,'0ade9590-2704-4afb-89cb-903bd1bc7206',1,0,0,1795321963.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321963.4386768);
INSERT INTO "usage" VALUES(45,'suspended','ada',NULL,'c5f23cef-2019-4f90-93f6-8b9587dba4d9',1,0,2,1795321963.0,2.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321963.4411883);
INSERT INTO "usage" VALUES(46,'canceling','ada',NULL,'8d936c11-3a44-43b8-b4b5-1fdab551712d',1,0,0,1795321964.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321964.4464498);
INSERT INTO "usage" VALUES(47,'resumed','ada',NULL,'e3095306-0d14-4fb5-b66d-2726427a095c',2,0,1,1795321964.0,10.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321964.4567928);
INSERT INTO "usage" VALUES(48,'between-complete','ada',NULL,'87eeea75-4a99-4c5d-8b64-1b8026b6f619',1,0,0,1795321965.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321965.5141265);
INSERT INTO "usage" VALUES(49,'evicted','ada',NULL,'2b3656e1-9a21-4ab7-8381-6792557dd54f',1,0,0,1795321965.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321965.5420637);
INSERT INTO "usage" VALUES(50,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,0,7,1795321965.0,40.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321965.5783076);
INSERT INTO "usage" VALUES(51,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,1,7,1795321965.0,39.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321965.5783532);
INSERT INTO "usage" VALUES(52,'web','ada',NULL,'954025b5-e34f-40b6-a6be-78fc4e366855',1,0,3,1795321965.0,20.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321965.6063502);
INSERT INTO "usage" VALUES(53,'resuming','ada',NULL,'f0aeabb6-c7b3-46a3-925a-815357035d77',1,0,3,1795321966.0,4.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321966.521142);
INSERT INTO "usage" VALUES(54,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,0,3,1795321966.0,20.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321966.6425972);
INSERT INTO "usage" VALUES(55,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,1,3,1795321966.0,20.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321966.642708);
INSERT INTO "usage" VALUES(56,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,2,3,1795321966.0,20.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321966.6427715);
INSERT INTO "usage" VALUES(57,'restarting','ada',NULL,'a5606c94-7ba2-4e2c-b707-26718c43d735',1,0,0,1795321963.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321966.940173);
INSERT INTO "usage" VALUES(58,'restarting','ada',NULL,'a5606c94-7ba2-4e2c-b707-26718c43d735',1,1,0,1795321963.0,0.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321966.9402719);
INSERT INTO "usage" VALUES(59,'evicted','ada',NULL,'2b3656e1-9a21-4ab7-8381-6792557dd54f',1,0,1,1795321966.6297383,6.6297383308410645,1,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321967.499968);
INSERT INTO "usage" VALUES(60,'caller','ada',NULL,'728e3789-bee2-4d78-8b7c-e3c560c0bbbe',1,0,3,1795321967.0,20.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321967.6230197);
INSERT INTO "usage" VALUES(61,'resuming','ada',NULL,'f0aeabb6-c7b3-46a3-925a-815357035d77',1,0,4,1795321950.0,4.0,1,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321967.7136276);
INSERT INTO "usage" VALUES(62,'between-start','ada',NULL,'be9c98af-6a0b-423b-88f4-1336275e86d9',1,0,0,1795321968.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321968.4995363);
INSERT INTO "usage" VALUES(63,'expiring','ada',NULL,'0ade9590-2704-4afb-89cb-903bd1bc7206',1,0,1,1795321968.0,10.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321968.5346322);
INSERT INTO "usage" VALUES(64,'restarting','ada',NULL,'a5606c94-7ba2-4e2c-b707-26718c43d735',1,0,1,1795321968.0,9.90556025505066,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321968.558859);
INSERT INTO "usage" VALUES(65,'restarting','ada',NULL,'a5606c94-7ba2-4e2c-b707-26718c43d735',1,1,1,1795321968.0,4.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321968.5589216);
INSERT INTO "usage" VALUES(66,'suspended','ada',NULL,'c5f23cef-2019-4f90-93f6-8b9587dba4d9',1,0,3,1795321968.0,2.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321968.5706122);
INSERT INTO "usage" VALUES(67,'suspending','ada',NULL,'6f11d455-3d74-4b48-a697-8c52ac938c7b',1,0,0,1795321968.0,5.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321968.572939);
INSERT INTO "usage" VALUES(68,'resumed','ada',NULL,'e3095306-0d14-4fb5-b66d-2726427a095c',2,0,2,1795321969.0,15.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321969.5087872);
INSERT INTO "usage" VALUES(69,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,0,8,1795321970.0,45.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321970.5907125);
INSERT INTO "usage" VALUES(70,'pair','ada',NULL,'5c3a2168-bc9d-4ba4-bd1a-031003c127d1',1,1,8,1795321970.0,44.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321970.5907805);
INSERT INTO "usage" VALUES(71,'web','ada',NULL,'954025b5-e34f-40b6-a6be-78fc4e366855',1,0,4,1795321970.0,25.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321970.6648254);
INSERT INTO "usage" VALUES(72,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,0,4,1795321971.0,25.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321971.4909515);
INSERT INTO "usage" VALUES(73,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,1,4,1795321971.0,25.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321971.4910297);
INSERT INTO "usage" VALUES(74,'tasks','ada',NULL,'4ded2e83-1dc3-40f4-be3d-af3d60f7a84f',1,2,4,1795321971.0,25.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321971.4910827);
INSERT INTO "usage" VALUES(75,'caller','ada',NULL,'728e3789-bee2-4d78-8b7c-e3c560c0bbbe',1,0,4,1795321972.0,25.0,0,NULL,'null','{"cpu": "50m", "memory": "64Mi"}',1795321972.4986887);
CREATE TABLE volcano (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	schema JSON NOT NULL, 
	CONSTRAINT pk_volcano PRIMARY KEY (id)
);
INSERT INTO "volcano" VALUES(1,'2315af0b0b7a537122d1bdb158e8cb7e91ae3a8f0fa656271986baaa3cc2c33a','{"properties": {"spec": {"properties": {"schedulerName": {"maxLength": 63}, "queue": {"maxLength": 63}, "minAvailable": {"minimum": 0}, "minSuccess": {"minimum": 1}, "maxRetry": {"minimum": 0}, "ttlSecondsAfterFinished": {"minimum": 0}, "priorityClassName": {"maxLength": 253}, "runningEstimate": {}, "policies": {"items": {"properties": {"action": {}, "event": {"enum": ["*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed", "OutOfSync", "CommandIssued", "JobUpdated"]}, "events": {"items": {"enum": ["*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed", "OutOfSync", "CommandIssued", "JobUpdated"]}}, "exitCode": {}, "timeout": {}}}}, "plugins": {"additionalProperties": {"items": {}}}, "volumes": {"items": {"properties": {"mountPath": {"pattern": "^[^:]*$"}, "volumeClaimName": {}, "volumeClaim": {"x-kubernetes-preserve-unknown-fields": true}}}}, "networkTopology": {"properties": {"mode": {"enum": ["hard", "soft"]}, "highestTierAllowed": {}, "highestTierName": {}}}, "tasks": {"items": {"properties": {"name": {"maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}, "replicas": {"minimum": 0}, "minAvailable": {"minimum": 0}, "template": {"properties": {"metadata": {"properties": {"name": {}, "namespace": {}, "labels": {"additionalProperties": {}}, "annotations": {"additionalProperties": {}}, "finalizers": {"items": {}}}}, "spec": {"x-kubernetes-preserve-unknown-fields": true}}}, "policies": {"items": {"properties": {"action": {}, "event": {"enum": ["*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed", "OutOfSync", "CommandIssued", "JobUpdated"]}, "events": {"items": {"enum": ["*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed", "OutOfSync", "CommandIssued", "JobUpdated"]}}, "exitCode": {}, "timeout": {}}}}, "maxRetry": {"minimum": 0}, "dependsOn": {"properties": {"name": {"items": {}}, "iteration": {}}}, "topologyPolicy": {"enum": ["none", "best-effort", "restricted", "single-numa-node"]}, "partitionPolicy": {"properties": {"totalPartitions": {"minimum": 1}, "partitionSize": {"minimum": 1}, "minPartitions": {"minimum": 1}, "networkTopology": {"properties": {"mode": {"enum": ["hard", "soft"]}, "highestTierAllowed": {}, "highestTierName": {}}}}}}}}}}}}');
CREATE INDEX ix_jobs_owner ON jobs (owner_user, id);
CREATE INDEX ix_jobs_project ON jobs (owner_project, id);
CREATE INDEX ix_jobs_revision ON jobs (revision);
CREATE INDEX ix_jobs_state ON jobs (state, id);
CREATE INDEX ix_revocations_at ON revocations (at);
CREATE INDEX ix_revocations_revision ON revocations (revision);
CREATE INDEX ix_due_at ON due (at);
CREATE INDEX ix_job_labels_name ON job_labels (name, value, job_id);
CREATE INDEX ix_sessions_hub_id ON sessions (hub_id);
CREATE INDEX ix_sessions_job_id ON sessions (job_id);
CREATE INDEX ix_sessions_revision ON sessions (revision);
CREATE INDEX ix_transitions_job_id ON transitions (job_id, id);
CREATE INDEX ix_jobs_queue ON jobs (queue, state, created_at);
CREATE INDEX ix_connections_peer_id ON connections (peer_id);
CREATE INDEX ix_links_job_id ON links (job_id);
CREATE INDEX ix_jobs_finished_at ON jobs (finished_at);
CREATE INDEX ix_sessions_ended_at ON sessions (ended_at);
COMMIT;
