SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.attempts (
    job_id character varying(40) NOT NULL,
    attempt integer NOT NULL,
    uid character varying(64) NOT NULL,
    submitted_at double precision NOT NULL,
    started_at double precision,
    ended_at double precision,
    outcome character varying(16),
    reason character varying(64),
    message text,
    retries integer DEFAULT 0 NOT NULL
);
CREATE TABLE public.companions (
    job_id character varying(40) NOT NULL,
    kind character varying(63) NOT NULL,
    namespace character varying(63) NOT NULL,
    name character varying(253) NOT NULL,
    uid character varying(64) NOT NULL,
    owner_uid character varying(64),
    address character varying(64),
    basis character varying(64),
    lasting boolean DEFAULT false NOT NULL
);
CREATE TABLE public.connections (
    job_id character varying(40) NOT NULL,
    peer_id character varying(40) NOT NULL,
    ports json NOT NULL
);
CREATE TABLE public.counters (
    name character varying(32) NOT NULL,
    value bigint NOT NULL
);
CREATE TABLE public.due (
    job_id character varying(40) NOT NULL,
    plugin character varying(63) NOT NULL,
    at double precision NOT NULL
);
CREATE TABLE public.extensions (
    job_id character varying(40) NOT NULL,
    key character varying(64) NOT NULL,
    seconds double precision NOT NULL,
    at double precision NOT NULL
);
CREATE TABLE public.hooks (
    job_id character varying(40) NOT NULL,
    attempt integer NOT NULL,
    hook character varying(16) NOT NULL,
    plugin character varying(63) NOT NULL,
    at double precision NOT NULL
);
CREATE TABLE public.hubs (
    id character varying(64) NOT NULL,
    host character varying(255) NOT NULL,
    port integer NOT NULL,
    started_at double precision NOT NULL,
    seen_at double precision NOT NULL
);
CREATE TABLE public.job_labels (
    job_id character varying(40) NOT NULL,
    name character varying(63) NOT NULL,
    value character varying(63) NOT NULL
);
CREATE TABLE public.jobs (
    id character varying(40) NOT NULL,
    owner_user character varying(255) NOT NULL,
    owner_project character varying(255),
    namespace character varying(63) NOT NULL,
    spec json NOT NULL,
    sealed bytea,
    fingerprint bytea,
    desired character varying(16) NOT NULL,
    state character varying(16) NOT NULL,
    reason character varying(64),
    message text,
    attempt integer NOT NULL,
    uid character varying(64),
    outcome character varying(16),
    created_at double precision NOT NULL,
    started_at double precision,
    finished_at double precision,
    revision bigint NOT NULL,
    queue character varying(63),
    allocated_seconds double precision,
    end_state character varying(16),
    end_reason character varying(64),
    end_message text,
    renewal character varying(16),
    stopping boolean DEFAULT false NOT NULL,
    product character varying(63),
    price json,
    cpu double precision DEFAULT '0'::double precision NOT NULL,
    memory double precision DEFAULT '0'::double precision NOT NULL,
    gpu double precision DEFAULT '0'::double precision NOT NULL,
    evictions integer DEFAULT 0 NOT NULL,
    retries_used integer DEFAULT 0 NOT NULL
);
CREATE TABLE public.leadership (
    id integer NOT NULL,
    term bigint NOT NULL,
    holder character varying(255) NOT NULL,
    seen_at double precision NOT NULL
);
CREATE TABLE public.links (
    name character varying(63) NOT NULL,
    owner text NOT NULL,
    job_id character varying(40),
    released_at double precision
);
CREATE TABLE public.maintenance (
    id integer NOT NULL,
    mode character varying(16) NOT NULL,
    message text,
    since double precision NOT NULL
);
CREATE TABLE public."position" (
    id integer NOT NULL,
    identity character varying(64) NOT NULL,
    revision bigint NOT NULL,
    epoch character varying(64),
    seq bigint NOT NULL
);
CREATE TABLE public.revocations (
    member character varying(512) NOT NULL,
    at double precision NOT NULL,
    sid character varying(26),
    jti character varying(128),
    sub character varying(255),
    kid character varying(255),
    revision bigint NOT NULL
);
CREATE TABLE public.runs (
    job_id character varying(40) NOT NULL,
    pod_uid character varying(64) NOT NULL,
    attempt integer NOT NULL,
    rank integer NOT NULL,
    task character varying(63) NOT NULL,
    index integer NOT NULL,
    pod character varying(253) NOT NULL,
    node character varying(253) NOT NULL,
    phase character varying(16) NOT NULL,
    reason character varying(64) NOT NULL,
    message text NOT NULL,
    exit_code integer,
    signal integer,
    seen_at double precision NOT NULL,
    started_at double precision,
    ended_at double precision
);
CREATE TABLE public.sessions (
    sid character varying(26) NOT NULL,
    job_id character varying(40) NOT NULL,
    rank integer NOT NULL,
    kind character varying(16) NOT NULL,
    endpoint character varying(63),
    port integer,
    base_path character varying(1024) NOT NULL,
    created_at double precision NOT NULL,
    ended_at double precision,
    end_reason character varying(64),
    hub_id character varying(64),
    pod character varying(253),
    pod_uid character varying(64),
    revision bigint NOT NULL,
    links json
);
CREATE TABLE public.tombstones (
    job_id character varying(40) NOT NULL,
    uid character varying(64) NOT NULL,
    at double precision NOT NULL
);
CREATE TABLE public.transitions (
    id bigint NOT NULL,
    job_id character varying(40) NOT NULL,
    attempt integer NOT NULL,
    at double precision NOT NULL,
    state character varying(16) NOT NULL,
    reason character varying(64),
    message text,
    exits json
);
CREATE SEQUENCE public.transitions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.transitions_id_seq OWNED BY public.transitions.id;
CREATE TABLE public.usage (
    id bigint NOT NULL,
    job_id character varying(40) NOT NULL,
    owner_user character varying(255) NOT NULL,
    owner_project character varying(255),
    uid character varying(64) NOT NULL,
    attempt integer NOT NULL,
    rank integer NOT NULL,
    period integer NOT NULL,
    until double precision NOT NULL,
    seconds double precision NOT NULL,
    final boolean NOT NULL,
    product character varying(63),
    price json,
    resources json NOT NULL,
    at double precision NOT NULL
);
CREATE TABLE public.volcano (
    id integer NOT NULL,
    digest character varying(64) NOT NULL,
    schema json NOT NULL
);
ALTER TABLE ONLY public.transitions ALTER COLUMN id SET DEFAULT nextval('public.transitions_id_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0005');
INSERT INTO public.attempts VALUES ('pair', 1, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1795322008.0724554, 1795322008, NULL, NULL, NULL, NULL, 0);
INSERT INTO public.attempts VALUES ('failed', 1, '55551876-6517-44f2-9dc7-81ac15bfabdf', 1795322024.857134, 1795322025, 1795322026.627653, 'FAILURE', 'exit_code', 'job 0 ended with exit code 3', 0);
INSERT INTO public.attempts VALUES ('expired', 1, '11850510-f440-49e9-bf54-3186bcf9cc9c', 1795322024.978316, 1795322026, 1795322027.502574, 'EXPIRED', 'expired', 'its time is over', 0);
INSERT INTO public.attempts VALUES ('released', 1, 'ec287c2e-c100-4b44-9470-e7cfc948a8f4', 1795322025.3301601, 1795322026, 1795322028.1796653, 'SUCCESS', 'asked', 'ended as asked', 0);
INSERT INTO public.attempts VALUES ('unfunded', 1, '3eed6cb5-e139-4114-8d77-a612fc98eec2', 1795322025.9799113, 1795322027, 1795322028.191992, 'FAILURE', 'out_of_funds', 'there are no funds for it any more', 0);
INSERT INTO public.attempts VALUES ('succeeded', 1, '7a6bb8f4-611d-4edf-bf7e-1ca1d67a4fab', 1795322024.5720224, 1795322025, 1795322028.6268187, 'SUCCESS', 'completed', NULL, 0);
INSERT INTO public.attempts VALUES ('web', 1, '04d43349-276d-48da-8a45-6b859e8b923d', 1795322031.0576167, 1795322031, NULL, NULL, NULL, NULL, 0);
INSERT INTO public.attempts VALUES ('caller', 1, '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', 1795322033.0632195, 1795322034, NULL, NULL, NULL, NULL, 0);
INSERT INTO public.attempts VALUES ('suspended', 1, '394cc3ad-99b6-4e1d-a736-5e8534439d85', 1795322032.5429735, 1795322034, NULL, NULL, NULL, NULL, 0);
INSERT INTO public.attempts VALUES ('tasks', 1, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1795322032.2550464, 1795322033, NULL, NULL, NULL, NULL, 0);
INSERT INTO public.attempts VALUES ('resumed', 1, '359e8b5e-94d7-482d-ab9b-fc0d7603d2eb', 1795322032.4057872, 1795322034, 1795322038.4420526, 'SUSPENDED', 'resumed', 'resumed, and submitted again', 0);
INSERT INTO public.attempts VALUES ('resumed', 2, '850da75f-9a76-430b-9132-d3459c7dab51', 1795322038.6782548, 1795322039, NULL, NULL, NULL, NULL, 0);
INSERT INTO public.attempts VALUES ('queued', 1, 'fea1445d-871b-488d-982f-5697db295791', 1795322041.1062465, NULL, NULL, NULL, NULL, NULL, 0);
INSERT INTO public.attempts VALUES ('between-start', 1, '6b7f8f01-3320-404e-9de5-7766515bb823', 1795322043.2325857, 1795322046, NULL, NULL, NULL, NULL, 0);
INSERT INTO public.attempts VALUES ('suspending', 1, 'af00c63a-66de-42e5-b666-15361fe8ed4d', 1795322044.198306, 1795322050, NULL, NULL, NULL, NULL, 0);
INSERT INTO public.attempts VALUES ('between-complete', 1, '55c0fdbe-7a7f-4453-b288-5fedb488b844', 1795322043.7467546, 1795322054, 1795322056.3856125, 'SUCCESS', 'asked', 'ended as asked', 0);
INSERT INTO public.attempts VALUES ('evicted', 1, '90270aa8-0254-4661-8025-3222b7f3f565', 1795322042.8417358, 1795322046, 1795322056.500628, 'EVICTED', 'evicted', 'job 0 was evicted: the node was low on disk; submitted again', 0);
INSERT INTO public.attempts VALUES ('resuming', 1, 'de01edb7-d26f-4e25-9d3b-5ae1582da992', 1795322032.6478112, 1795322035, 1795322056.8422215, 'SUSPENDED', 'resumed', 'resumed, and submitted again', 0);
INSERT INTO public.attempts VALUES ('canceling', 1, 'a2b5702f-2d30-4875-a623-91e8bb21f81a', 1795322044.7064726, 1795322050, 1795322057.3586173, 'SUCCESS', 'asked', 'ended as asked', 0);
INSERT INTO public.attempts VALUES ('restarting', 1, '52c27ca5-9b85-4fff-9a4f-9aea450886d3', 1795322042.6872923, 1795322045, NULL, NULL, NULL, NULL, 1);
INSERT INTO public.attempts VALUES ('expiring', 1, 'ecadbb4a-4233-439b-b30f-c69aa3e49e09', 1795322045.0732286, 1795322047, 1795322060.435788, 'EXPIRED', 'expired', 'its time is over', 0);
INSERT INTO public.companions VALUES ('pair', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-pair.ranks', '4c04115d-df05-4bf3-8f6a-337eb2cb4a22', '890c8442-c284-4345-beef-c0d4b2aa0de8', NULL, NULL, false);
INSERT INTO public.companions VALUES ('pair', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-pair.network', '0306e5b7-fabe-4510-a0b5-999d2fc30ff8', '890c8442-c284-4345-beef-c0d4b2aa0de8', NULL, '-', false);
INSERT INTO public.companions VALUES ('pair', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-pair.cost-centre', '334edbc4-72b0-4b65-a9f9-3b58d14dd2ee', '890c8442-c284-4345-beef-c0d4b2aa0de8', NULL, NULL, false);
INSERT INTO public.companions VALUES ('pair', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-pair.gateway', '7fcdc9a8-f47a-4fc4-b354-6a603c874778', '890c8442-c284-4345-beef-c0d4b2aa0de8', NULL, NULL, false);
INSERT INTO public.companions VALUES ('suspended', 'Service', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'rank-suspended-0', '358af705-7a43-4c4d-a877-971f23ccf6c6', '394cc3ad-99b6-4e1d-a736-5e8534439d85', '127.152.224.4', NULL, false);
INSERT INTO public.companions VALUES ('tasks', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-tasks.ranks', 'cfdd81db-d958-4433-97cc-4d7f57017c2d', 'c451e52d-a032-440e-8ef7-d57f552f9ea1', NULL, NULL, false);
INSERT INTO public.companions VALUES ('tasks', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-tasks.network', '0eab4543-b8c9-45e4-b250-af1a3681c337', 'c451e52d-a032-440e-8ef7-d57f552f9ea1', NULL, '-', false);
INSERT INTO public.companions VALUES ('tasks', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-tasks.cost-centre', 'f4a712f5-e3b6-4b40-9b55-04ded7ee29d0', 'c451e52d-a032-440e-8ef7-d57f552f9ea1', NULL, NULL, false);
INSERT INTO public.companions VALUES ('tasks', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-tasks.gateway', 'ee6ae848-7f2a-4fe8-bcb9-b35e7b11b8f8', 'c451e52d-a032-440e-8ef7-d57f552f9ea1', NULL, NULL, false);
INSERT INTO public.companions VALUES ('resumed', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-resumed.network', 'b32eadf8-f380-4822-ac4a-bf6fb1628e7e', '850da75f-9a76-430b-9132-d3459c7dab51', NULL, '-', false);
INSERT INTO public.companions VALUES ('caller', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-caller.ranks', '4884aed6-9297-46cc-8a93-294f27758c80', '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', NULL, NULL, false);
INSERT INTO public.companions VALUES ('caller', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-caller.network', 'd71010e7-3b37-4ab6-a309-def3e8f1c69c', '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', NULL, '-', false);
INSERT INTO public.companions VALUES ('caller', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-caller.cost-centre', 'd2984cb4-3a0d-4037-8661-ab551555c950', '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', NULL, NULL, false);
INSERT INTO public.companions VALUES ('resumed', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-resumed.cost-centre', 'c0aa2e2f-d873-45a8-a43e-49cd752ac481', '850da75f-9a76-430b-9132-d3459c7dab51', NULL, NULL, false);
INSERT INTO public.companions VALUES ('resumed', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-resumed.gateway', '660c5779-27ee-44ee-b62e-98742a43d62a', '850da75f-9a76-430b-9132-d3459c7dab51', NULL, NULL, false);
INSERT INTO public.companions VALUES ('web', 'Secret', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-web.parameters', '4732f1e6-05fb-4ef4-8d94-f44008cca08f', '04d43349-276d-48da-8a45-6b859e8b923d', NULL, NULL, false);
INSERT INTO public.companions VALUES ('web', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-web.ranks', 'dfabb8c3-1949-48a5-a01a-767e8875045d', '04d43349-276d-48da-8a45-6b859e8b923d', NULL, NULL, false);
INSERT INTO public.companions VALUES ('web', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-web.network', 'f9e69eb3-9429-4ee2-be14-2cf9a44562a2', '04d43349-276d-48da-8a45-6b859e8b923d', NULL, '4de5a22f5db4b22b27298f78a3e28d59', false);
INSERT INTO public.companions VALUES ('web', 'Service', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'peer-web', '3a4be38c-2ad3-4a07-be53-3dfe360b3399', NULL, '127.152.224.3', NULL, true);
INSERT INTO public.companions VALUES ('web', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-web.cost-centre', '26327635-f659-4236-9346-94a38dab8c4b', '04d43349-276d-48da-8a45-6b859e8b923d', NULL, NULL, false);
INSERT INTO public.companions VALUES ('web', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-web.gateway', '7bfc4701-3c63-4a05-b8e9-091e301e06ce', '04d43349-276d-48da-8a45-6b859e8b923d', NULL, NULL, false);
INSERT INTO public.companions VALUES ('web', 'Service', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'rank-web-0', '597f917c-bf33-423c-8aef-62fdcd59f8f1', '04d43349-276d-48da-8a45-6b859e8b923d', '127.152.224.2', NULL, false);
INSERT INTO public.companions VALUES ('suspended', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-suspended.ranks', '4ad5f172-eef3-4620-9c3d-978a38166ffe', '394cc3ad-99b6-4e1d-a736-5e8534439d85', NULL, NULL, false);
INSERT INTO public.companions VALUES ('suspended', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-suspended.network', '5d71b306-2c20-4ae7-836e-0bacd39fadbb', '394cc3ad-99b6-4e1d-a736-5e8534439d85', NULL, '-', false);
INSERT INTO public.companions VALUES ('suspended', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-suspended.cost-centre', '9a896651-cae0-415d-a3c4-513f1cb29e85', '394cc3ad-99b6-4e1d-a736-5e8534439d85', NULL, NULL, false);
INSERT INTO public.companions VALUES ('suspended', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-suspended.gateway', '93003e38-24f3-49ef-a24d-7126b01d164a', '394cc3ad-99b6-4e1d-a736-5e8534439d85', NULL, NULL, false);
INSERT INTO public.companions VALUES ('caller', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-caller.gateway', 'ed3a1454-6bbc-4f14-9086-b19c6ec60c52', '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', NULL, NULL, false);
INSERT INTO public.companions VALUES ('resumed', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-resumed.ranks', '5978c3fb-136b-4a10-9c21-4893eaa1ee49', '850da75f-9a76-430b-9132-d3459c7dab51', NULL, NULL, false);
INSERT INTO public.companions VALUES ('prepared', 'Secret', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-prepared.parameters', '', NULL, NULL, NULL, false);
INSERT INTO public.companions VALUES ('prepared', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-prepared.ranks', '', NULL, NULL, NULL, false);
INSERT INTO public.companions VALUES ('prepared', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-prepared.network', '', NULL, NULL, NULL, false);
INSERT INTO public.companions VALUES ('queued', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-queued.ranks', '942c4b6e-b7df-4994-b0eb-cca0930ca3d8', 'fea1445d-871b-488d-982f-5697db295791', NULL, NULL, false);
INSERT INTO public.companions VALUES ('queued', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-queued.network', 'f2d4c9ca-745f-4f84-8a14-1f1e15ff83c9', 'fea1445d-871b-488d-982f-5697db295791', NULL, '-', false);
INSERT INTO public.companions VALUES ('queued', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-queued.cost-centre', '43995550-6432-4cb7-a932-c440ceae1cac', 'fea1445d-871b-488d-982f-5697db295791', NULL, NULL, false);
INSERT INTO public.companions VALUES ('queued', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-queued.gateway', '82fe372c-77b3-421d-bf09-30a2374df888', 'fea1445d-871b-488d-982f-5697db295791', NULL, NULL, false);
INSERT INTO public.companions VALUES ('queued', 'Service', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'rank-queued-0', '8da4a11b-6765-477a-8bdb-c368de420ba4', 'fea1445d-871b-488d-982f-5697db295791', '127.152.224.5', NULL, false);
INSERT INTO public.companions VALUES ('restarting', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-restarting.ranks', 'bc68c08e-2083-4634-ab5f-105e75763d20', '52c27ca5-9b85-4fff-9a4f-9aea450886d3', NULL, NULL, false);
INSERT INTO public.companions VALUES ('restarting', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-restarting.network', 'be1a5de7-b349-442c-a855-11e77b646dbb', '52c27ca5-9b85-4fff-9a4f-9aea450886d3', NULL, '-', false);
INSERT INTO public.companions VALUES ('restarting', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-restarting.cost-centre', '419df7ef-64fc-423b-b4f7-80ad8a515ead', '52c27ca5-9b85-4fff-9a4f-9aea450886d3', NULL, NULL, false);
INSERT INTO public.companions VALUES ('restarting', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-restarting.gateway', '9aa8c91a-d5c7-45c4-9e47-2f28c4d17415', '52c27ca5-9b85-4fff-9a4f-9aea450886d3', NULL, NULL, false);
INSERT INTO public.companions VALUES ('between-start', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-between-start.ranks', '4260c8e8-166b-46bb-949d-d4b257b9f325', '6b7f8f01-3320-404e-9de5-7766515bb823', NULL, NULL, false);
INSERT INTO public.companions VALUES ('between-start', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-between-start.network', 'ef98988a-8945-4382-a503-1641d066ccb1', '6b7f8f01-3320-404e-9de5-7766515bb823', NULL, '-', false);
INSERT INTO public.companions VALUES ('canceling', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-canceling.cost-centre', '3c28f7bf-4538-4592-bfea-ae4bc41adf26', 'a2b5702f-2d30-4875-a623-91e8bb21f81a', NULL, NULL, false);
INSERT INTO public.companions VALUES ('canceling', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-canceling.gateway', 'fabd8e84-0e9a-423e-858d-593d97782cb9', 'a2b5702f-2d30-4875-a623-91e8bb21f81a', NULL, NULL, false);
INSERT INTO public.companions VALUES ('expiring', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-expiring.cost-centre', '0dc2c705-07a8-4e52-be86-fc64aac37d9c', 'ecadbb4a-4233-439b-b30f-c69aa3e49e09', NULL, NULL, false);
INSERT INTO public.companions VALUES ('expiring', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-expiring.gateway', '64d61aca-b323-4195-868b-b202b2669c58', 'ecadbb4a-4233-439b-b30f-c69aa3e49e09', NULL, NULL, false);
INSERT INTO public.companions VALUES ('between-complete', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-between-complete.ranks', '45a0aa32-003d-4507-b3bd-0eda2f7fa507', '55c0fdbe-7a7f-4453-b288-5fedb488b844', NULL, NULL, false);
INSERT INTO public.companions VALUES ('between-complete', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-between-complete.network', 'b15ad059-a79d-4cee-9dcf-c6563d674a4c', '55c0fdbe-7a7f-4453-b288-5fedb488b844', NULL, '-', false);
INSERT INTO public.companions VALUES ('between-complete', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-between-complete.cost-centre', 'b6a565bb-c668-4e4e-82fb-e17ef118bd28', '55c0fdbe-7a7f-4453-b288-5fedb488b844', NULL, NULL, false);
INSERT INTO public.companions VALUES ('between-complete', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-between-complete.gateway', '49e6e67f-0a94-4cd1-a44d-7454ac07db90', '55c0fdbe-7a7f-4453-b288-5fedb488b844', NULL, NULL, false);
INSERT INTO public.companions VALUES ('expiring', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-expiring.ranks', '04aef772-12da-4edc-a99d-fcc32469afd9', 'ecadbb4a-4233-439b-b30f-c69aa3e49e09', NULL, NULL, false);
INSERT INTO public.companions VALUES ('expiring', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-expiring.network', 'f2a01a56-70f4-462d-a6e1-fdea5e364587', 'ecadbb4a-4233-439b-b30f-c69aa3e49e09', NULL, '-', false);
INSERT INTO public.companions VALUES ('between-start', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-between-start.cost-centre', '167cf587-d54d-4064-9758-b3f0bd124f3f', '6b7f8f01-3320-404e-9de5-7766515bb823', NULL, NULL, false);
INSERT INTO public.companions VALUES ('between-start', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-between-start.gateway', '1331841f-ac27-4ff7-b17a-70e90c32338c', '6b7f8f01-3320-404e-9de5-7766515bb823', NULL, NULL, false);
INSERT INTO public.companions VALUES ('suspending', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-suspending.ranks', 'ca52a7e4-e80d-4a55-bab2-686fcbc10a23', 'af00c63a-66de-42e5-b666-15361fe8ed4d', NULL, NULL, false);
INSERT INTO public.companions VALUES ('suspending', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-suspending.network', '20a1660f-728d-4dbe-8e09-a47fe6d63a22', 'af00c63a-66de-42e5-b666-15361fe8ed4d', NULL, '-', false);
INSERT INTO public.companions VALUES ('suspending', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-suspending.cost-centre', 'f62522fb-dc16-4510-8bd1-4028a8656e1d', 'af00c63a-66de-42e5-b666-15361fe8ed4d', NULL, NULL, false);
INSERT INTO public.companions VALUES ('suspending', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-suspending.gateway', '47d19d80-9e59-4abd-a50a-652f8907c0d2', 'af00c63a-66de-42e5-b666-15361fe8ed4d', NULL, NULL, false);
INSERT INTO public.companions VALUES ('canceling', 'ConfigMap', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-canceling.ranks', 'c9602dcb-03fb-4a45-9e49-2f21ecc045bb', 'a2b5702f-2d30-4875-a623-91e8bb21f81a', NULL, NULL, false);
INSERT INTO public.companions VALUES ('canceling', 'NetworkPolicy', 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 'j-canceling.network', '44c5fd74-ca03-4bde-be1a-2a2940c91dc8', 'a2b5702f-2d30-4875-a623-91e8bb21f81a', NULL, '-', false);
INSERT INTO public.connections VALUES ('caller', 'web', '[]');
INSERT INTO public.connections VALUES ('prepared', 'kept', '[9000]');
INSERT INTO public.counters VALUES ('usage_forgotten', 0);
INSERT INTO public.counters VALUES ('updates_forgotten', 11);
INSERT INTO public.counters VALUES ('updates', 124);
INSERT INTO public.counters VALUES ('usage', 91);
INSERT INTO public.counters VALUES ('usage_acknowledged', 14);
INSERT INTO public.due VALUES ('web', 'expiry', 1795358031);
INSERT INTO public.due VALUES ('web', 'cost_centre', 1795322064.5954306);
INSERT INTO public.due VALUES ('caller', 'cost_centre', 1795322066.0191565);
INSERT INTO public.due VALUES ('pair', 'cost_centre', 1795322066.019157);
INSERT INTO public.due VALUES ('caller', 'accounting', 1795322064);
INSERT INTO public.due VALUES ('resumed', 'accounting', 1795322064);
INSERT INTO public.due VALUES ('suspended', 'accounting', 1795322064);
INSERT INTO public.due VALUES ('restarting', 'accounting', 1795322065);
INSERT INTO public.due VALUES ('suspending', 'accounting', 1795322065);
INSERT INTO public.due VALUES ('restarting', 'cost_centre', 1795322066.4656918);
INSERT INTO public.due VALUES ('suspended', 'cost_centre', 1795322066.4656925);
INSERT INTO public.due VALUES ('between-start', 'accounting', 1795322066);
INSERT INTO public.due VALUES ('web', 'accounting', 1795322066);
INSERT INTO public.due VALUES ('tasks', 'cost_centre', 1795322066.9686413);
INSERT INTO public.due VALUES ('resumed', 'cost_centre', 1795322066.9686418);
INSERT INTO public.due VALUES ('evicted', 'cost_centre', 1795322067.5244792);
INSERT INTO public.due VALUES ('resuming', 'cost_centre', 1795322067.52448);
INSERT INTO public.due VALUES ('pair', 'accounting', 1795322068);
INSERT INTO public.due VALUES ('tasks', 'accounting', 1795322068);
INSERT INTO public.due VALUES ('suspending', 'cost_centre', 1795322069.5657988);
INSERT INTO public.extensions VALUES ('web', '3225ae2681b9c6f8f92efd4aefaf2eea', 600, 1795322040.6258454);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'task', 1795322009.434339);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'kata_container', 1795322009.4623969);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'parameter', 1795322009.4916282);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'file_mount', 1795322009.5141613);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'multi_node', 1795322009.5376165);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'shared_memory', 1795322009.5613205);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'network_limit', 1795322009.581321);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'fair_share', 1795322009.6066606);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'expiry', 1795322009.6218927);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'accounting', 1795322009.6872904);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'connect_to_job', 1795322009.706053);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'ingress', 1795322009.7129037);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'miscellaneous', 1795322009.7254083);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'minikube', 1795322009.7335896);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'cost_centre', 1795322009.753093);
INSERT INTO public.hooks VALUES ('pair', 1, 'start', 'proxy', 1795322009.7610636);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'task', 1795322025.7313998);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'kata_container', 1795322025.7378576);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'parameter', 1795322025.7461932);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'file_mount', 1795322025.75559);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'multi_node', 1795322025.7884216);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'shared_memory', 1795322025.8309093);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'network_limit', 1795322025.832946);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'fair_share', 1795322025.845604);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'expiry', 1795322025.8478317);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'accounting', 1795322025.8609705);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'connect_to_job', 1795322025.8826115);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'ingress', 1795322025.9087474);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'miscellaneous', 1795322025.9260614);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'minikube', 1795322025.9380815);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'cost_centre', 1795322025.9607446);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'start', 'proxy', 1795322025.977724);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'task', 1795322026.3411899);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'kata_container', 1795322026.3432996);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'parameter', 1795322026.3580549);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'file_mount', 1795322026.3732371);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'multi_node', 1795322026.3887584);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'shared_memory', 1795322026.3996036);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'network_limit', 1795322026.421175);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'fair_share', 1795322026.4250803);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'expiry', 1795322026.4378624);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'accounting', 1795322026.4992702);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'connect_to_job', 1795322026.5179663);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'ingress', 1795322026.5242338);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'miscellaneous', 1795322026.5327072);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'minikube', 1795322026.5509973);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'cost_centre', 1795322026.562585);
INSERT INTO public.hooks VALUES ('failed', 1, 'start', 'proxy', 1795322026.5738497);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'task', 1795322026.6690006);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'kata_container', 1795322026.68529);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'parameter', 1795322026.6935449);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'file_mount', 1795322026.711213);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'multi_node', 1795322026.7167306);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'shared_memory', 1795322026.7297215);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'network_limit', 1795322026.7330766);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'fair_share', 1795322026.7422762);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'expiry', 1795322026.7507398);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'accounting', 1795322026.7621799);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'connect_to_job', 1795322026.7661467);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'ingress', 1795322026.7729979);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'miscellaneous', 1795322026.7888317);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'minikube', 1795322026.796411);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'cost_centre', 1795322026.8040445);
INSERT INTO public.hooks VALUES ('failed', 1, 'complete', 'proxy', 1795322026.830003);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'task', 1795322026.8631182);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'kata_container', 1795322026.8783228);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'parameter', 1795322026.8864784);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'file_mount', 1795322026.9054766);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'multi_node', 1795322026.9248333);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'shared_memory', 1795322026.9521236);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'network_limit', 1795322026.9674122);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'fair_share', 1795322026.9800463);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'expiry', 1795322027.0055425);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'task', 1795322027.0425036);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'accounting', 1795322027.0429149);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'kata_container', 1795322027.0538802);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'connect_to_job', 1795322027.054662);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'parameter', 1795322027.062723);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'file_mount', 1795322027.0769897);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'ingress', 1795322027.0788643);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'multi_node', 1795322027.0884948);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'miscellaneous', 1795322027.0892162);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'shared_memory', 1795322027.0919788);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'connect_to_job', 1795322027.1983206);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'proxy', 1795322027.3782814);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'parameter', 1795322027.5467067);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'multi_node', 1795322027.587938);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'network_limit', 1795322027.6136343);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'connect_to_job', 1795322027.7004168);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'ingress', 1795322027.7407115);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'minikube', 1795322027.7473295);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'multi_node', 1795322027.9686556);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'ingress', 1795322028.0850132);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'cost_centre', 1795322028.1386425);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'kata_container', 1795322028.265911);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'parameter', 1795322028.296469);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'network_limit', 1795322028.3112931);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'expiry', 1795322028.3532174);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'cost_centre', 1795322028.4166987);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'proxy', 1795322028.4322906);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'proxy', 1795322028.4510102);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'multi_node', 1795322028.668877);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'accounting', 1795322028.6767378);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'cost_centre', 1795322028.690283);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'parameter', 1795322028.7329323);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'fair_share', 1795322028.7493649);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'kata_container', 1795322030.0640018);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'network_limit', 1795322030.0811515);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'connect_to_job', 1795322030.14936);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'cost_centre', 1795322030.1896896);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'multi_node', 1795322030.3049066);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'accounting', 1795322030.394233);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'miscellaneous', 1795322030.4217722);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'parameter', 1795322030.6331925);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'fair_share', 1795322030.6687849);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'ingress', 1795322032.0977309);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'parameter', 1795322034.2980533);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'connect_to_job', 1795322034.3388214);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'proxy', 1795322034.3540936);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'expiry', 1795322034.9286532);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'connect_to_job', 1795322034.9690433);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'cost_centre', 1795322034.995753);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'shared_memory', 1795322035.0161223);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'expiry', 1795322035.0264583);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'ingress', 1795322035.0380404);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'proxy', 1795322035.0453403);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'task', 1795322035.1319845);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'shared_memory', 1795322035.1421304);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'accounting', 1795322035.1595733);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'cost_centre', 1795322035.1767378);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'task', 1795322035.8445942);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'multi_node', 1795322035.8553915);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'expiry', 1795322035.8620348);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'cost_centre', 1795322035.91493);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'task', 1795322040.614859);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'file_mount', 1795322040.724975);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'miscellaneous', 1795322040.9446971);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'cost_centre', 1795322040.9920013);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'minikube', 1795322027.093593);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'expiry', 1795322027.1152742);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'task', 1795322027.5209026);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'kata_container', 1795322027.602876);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'fair_share', 1795322027.6252794);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'shared_memory', 1795322027.6580553);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'expiry', 1795322027.6989434);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'connect_to_job', 1795322027.7241266);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'miscellaneous', 1795322027.7459342);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'task', 1795322027.9496856);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'shared_memory', 1795322027.971501);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'minikube', 1795322028.1253252);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'proxy', 1795322028.161338);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'kata_container', 1795322028.286478);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'shared_memory', 1795322028.3069723);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'network_limit', 1795322028.320689);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'accounting', 1795322028.3782136);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'ingress', 1795322028.411329);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'file_mount', 1795322028.6646864);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'expiry', 1795322028.6729808);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'minikube', 1795322028.6828654);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'network_limit', 1795322028.7482414);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'connect_to_job', 1795322028.781092);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'cost_centre', 1795322028.7866247);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'task', 1795322030.0569386);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'shared_memory', 1795322030.0798273);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'accounting', 1795322030.1370144);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'minikube', 1795322030.1826348);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'proxy', 1795322030.2407959);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'kata_container', 1795322030.2692354);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'file_mount', 1795322030.2943552);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'network_limit', 1795322030.3387477);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'expiry', 1795322030.3664215);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'connect_to_job', 1795322030.4022152);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'minikube', 1795322030.4248772);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'multi_node', 1795322030.6490424);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'miscellaneous', 1795322030.7423637);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'minikube', 1795322032.1047757);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'proxy', 1795322032.131066);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'task', 1795322034.2888823);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'multi_node', 1795322034.3049455);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'expiry', 1795322034.3236074);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'miscellaneous', 1795322034.343432);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'task', 1795322034.909573);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'multi_node', 1795322034.9236062);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'task', 1795322035.0055923);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'multi_node', 1795322035.013785);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'connect_to_job', 1795322035.0366635);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'cost_centre', 1795322035.043081);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'kata_container', 1795322035.1363313);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'network_limit', 1795322035.143016);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'connect_to_job', 1795322035.168152);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'proxy', 1795322035.1790462);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'parameter', 1795322035.853341);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'network_limit', 1795322035.8578584);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'connect_to_job', 1795322035.8781016);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'proxy', 1795322035.9285772);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'fair_share', 1795322040.8496249);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'proxy', 1795322041.010718);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'kata_container', 1795322048.021689);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'file_mount', 1795322048.14889);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'shared_memory', 1795322048.2096508);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'network_limit', 1795322048.2944055);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'fair_share', 1795322048.356665);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'expiry', 1795322048.4569979);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'accounting', 1795322048.5461915);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'ingress', 1795322048.614375);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'minikube', 1795322048.6584215);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'minikube', 1795322048.717479);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'parameter', 1795322049.6650999);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'accounting', 1795322049.8371463);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'miscellaneous', 1795322049.967481);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'parameter', 1795322050.5454636);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'network_limit', 1795322050.5772045);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'connect_to_job', 1795322050.656831);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'proxy', 1795322050.710623);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'kata_container', 1795322052.9413602);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'file_mount', 1795322052.9769561);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'fair_share', 1795322053.032759);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'expiry', 1795322053.1016426);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'accounting', 1795322053.252757);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'ingress', 1795322053.329249);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'proxy', 1795322053.3631437);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'task', 1795322056.035328);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'multi_node', 1795322056.1236362);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'proxy', 1795322056.3487833);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'kata_container', 1795322056.4970522);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'network_limit', 1795322056.5707567);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'minikube', 1795322056.6706092);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'task', 1795322057.4207914);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'file_mount', 1795322057.4825773);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'ingress', 1795322057.8601766);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'network_limit', 1795322027.0979745);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'proxy', 1795322027.1373281);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'accounting', 1795322027.1792712);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'kata_container', 1795322027.5317185);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'file_mount', 1795322027.5623543);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'shared_memory', 1795322027.6039495);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'expiry', 1795322027.6341968);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'network_limit', 1795322027.6743896);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'accounting', 1795322027.7019842);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'ingress', 1795322027.7434158);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'cost_centre', 1795322027.752703);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'proxy', 1795322027.7635596);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'parameter', 1795322027.9579935);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'fair_share', 1795322028.0022314);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'task', 1795322028.2460468);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'file_mount', 1795322028.2932189);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'multi_node', 1795322028.3081343);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'expiry', 1795322028.32128);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'connect_to_job', 1795322028.3528044);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'miscellaneous', 1795322028.388691);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'miscellaneous', 1795322028.4199016);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'cost_centre', 1795322028.433927);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'task', 1795322028.6567307);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'shared_memory', 1795322028.669951);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'connect_to_job', 1795322028.6778486);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'task', 1795322028.721405);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'file_mount', 1795322028.738007);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'expiry', 1795322028.7502244);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'ingress', 1795322028.7831209);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'proxy', 1795322028.797178);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'file_mount', 1795322030.0673559);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'expiry', 1795322030.1093125);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'ingress', 1795322030.1681151);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'task', 1795322030.2553327);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'shared_memory', 1795322030.3216436);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'kata_container', 1795322030.6238077);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'network_limit', 1795322030.6670716);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'connect_to_job', 1795322030.7227764);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'cost_centre', 1795322030.754644);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'kata_container', 1795322031.9161768);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'multi_node', 1795322031.9265664);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'network_limit', 1795322031.959081);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'accounting', 1795322032.070418);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'miscellaneous', 1795322032.0988183);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'cost_centre', 1795322032.1130493);
INSERT INTO public.hooks VALUES ('failed', 1, 'cleanup', 'cost_centre', 1795322027.0990167);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'ingress', 1795322027.2375834);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'miscellaneous', 1795322027.2908728);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'minikube', 1795322027.3182437);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'cost_centre', 1795322027.3504052);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'task', 1795322027.5809417);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'parameter', 1795322027.6131806);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'multi_node', 1795322027.6459973);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'fair_share', 1795322027.6833858);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'miscellaneous', 1795322027.7438974);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'cost_centre', 1795322027.7572377);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'file_mount', 1795322027.964097);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'connect_to_job', 1795322028.0804448);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'parameter', 1795322028.2833993);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'file_mount', 1795322028.3021944);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'fair_share', 1795322028.3160172);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'accounting', 1795322028.3400126);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'minikube', 1795322028.40903);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'minikube', 1795322028.4264882);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'kata_container', 1795322028.6600716);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'network_limit', 1795322028.6707017);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'ingress', 1795322028.6787748);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'proxy', 1795322028.7022088);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'multi_node', 1795322028.7388093);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'miscellaneous', 1795322028.7838533);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'multi_node', 1795322030.0782669);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'miscellaneous', 1795322030.177933);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'parameter', 1795322030.2848227);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'ingress', 1795322030.4160655);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'proxy', 1795322030.4475522);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'file_mount', 1795322030.63502);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'expiry', 1795322030.6767685);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'ingress', 1795322030.731662);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'proxy', 1795322030.7703583);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'task', 1795322031.9032028);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'file_mount', 1795322031.9216497);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'shared_memory', 1795322031.9499202);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'expiry', 1795322031.983588);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'file_mount', 1795322034.2992413);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'fair_share', 1795322034.3206635);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'ingress', 1795322034.3404055);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'file_mount', 1795322034.9207065);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'fair_share', 1795322034.9278688);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'accounting', 1795322034.9492226);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'ingress', 1795322034.9722435);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'proxy', 1795322035.00235);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'kata_container', 1795322035.0080893);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'network_limit', 1795322035.0173542);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'miscellaneous', 1795322035.0406075);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'file_mount', 1795322035.1381898);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'expiry', 1795322035.1501799);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'miscellaneous', 1795322035.170548);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'file_mount', 1795322035.8544965);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'fair_share', 1795322035.861209);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'ingress', 1795322035.8819172);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'ingress', 1795322040.932708);
INSERT INTO public.hooks VALUES ('expired', 1, 'start', 'fair_share', 1795322027.1077518);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'file_mount', 1795322027.6257741);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'accounting', 1795322027.6739745);
INSERT INTO public.hooks VALUES ('expired', 1, 'complete', 'minikube', 1795322027.746281);
INSERT INTO public.hooks VALUES ('released', 1, 'start', 'proxy', 1795322027.7618532);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'kata_container', 1795322027.9535413);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'network_limit', 1795322027.9799032);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'expiry', 1795322028.030206);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'accounting', 1795322028.0605927);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'start', 'miscellaneous', 1795322028.1203098);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'task', 1795322028.2608292);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'multi_node', 1795322028.3016703);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'shared_memory', 1795322028.3129275);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'fair_share', 1795322028.3374043);
INSERT INTO public.hooks VALUES ('released', 1, 'complete', 'ingress', 1795322028.3709211);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'complete', 'connect_to_job', 1795322028.39993);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'parameter', 1795322028.6623294);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'fair_share', 1795322028.6713784);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'complete', 'miscellaneous', 1795322028.680819);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'kata_container', 1795322028.7295136);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'shared_memory', 1795322028.7396612);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'accounting', 1795322028.772625);
INSERT INTO public.hooks VALUES ('succeeded', 1, 'cleanup', 'minikube', 1795322028.7845783);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'parameter', 1795322030.065271);
INSERT INTO public.hooks VALUES ('expired', 1, 'cleanup', 'fair_share', 1795322030.0974483);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'fair_share', 1795322030.347727);
INSERT INTO public.hooks VALUES ('unfunded', 1, 'cleanup', 'cost_centre', 1795322030.4309552);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'task', 1795322030.6169257);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'shared_memory', 1795322030.6529074);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'accounting', 1795322030.7145755);
INSERT INTO public.hooks VALUES ('released', 1, 'cleanup', 'minikube', 1795322030.7440996);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'parameter', 1795322031.918916);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'fair_share', 1795322031.9727051);
INSERT INTO public.hooks VALUES ('web', 1, 'start', 'connect_to_job', 1795322032.0784047);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'kata_container', 1795322034.290882);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'shared_memory', 1795322034.3124812);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'network_limit', 1795322034.3158998);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'accounting', 1795322034.332844);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'minikube', 1795322034.3444998);
INSERT INTO public.hooks VALUES ('caller', 1, 'start', 'cost_centre', 1795322034.345653);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'kata_container', 1795322034.9140067);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'parameter', 1795322034.9166775);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'shared_memory', 1795322034.926011);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'network_limit', 1795322034.9269474);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'miscellaneous', 1795322034.9887946);
INSERT INTO public.hooks VALUES ('resumed', 1, 'start', 'minikube', 1795322034.9931586);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'parameter', 1795322035.0100043);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'file_mount', 1795322035.012263);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'fair_share', 1795322035.0204895);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'accounting', 1795322035.0342073);
INSERT INTO public.hooks VALUES ('suspended', 1, 'start', 'minikube', 1795322035.0419216);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'parameter', 1795322035.1374085);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'multi_node', 1795322035.1410432);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'fair_share', 1795322035.1492348);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'ingress', 1795322035.1696248);
INSERT INTO public.hooks VALUES ('tasks', 1, 'start', 'minikube', 1795322035.172619);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'kata_container', 1795322035.8464906);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'shared_memory', 1795322035.8562698);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'accounting', 1795322035.871246);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'miscellaneous', 1795322035.8894074);
INSERT INTO public.hooks VALUES ('resuming', 1, 'start', 'minikube', 1795322035.89273);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'kata_container', 1795322040.6767852);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'parameter', 1795322040.6981955);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'multi_node', 1795322040.7661083);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'shared_memory', 1795322040.797931);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'network_limit', 1795322040.8333728);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'expiry', 1795322040.8621373);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'accounting', 1795322040.897865);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'connect_to_job', 1795322040.9148562);
INSERT INTO public.hooks VALUES ('resumed', 2, 'start', 'minikube', 1795322040.969042);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'task', 1795322047.9957142);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'task', 1795322048.0534475);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'parameter', 1795322048.08924);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'kata_container', 1795322048.0952938);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'parameter', 1795322048.1438537);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'multi_node', 1795322048.1772392);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'file_mount', 1795322048.1862104);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'multi_node', 1795322048.2102895);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'shared_memory', 1795322048.2935903);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'network_limit', 1795322048.3689606);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'fair_share', 1795322048.4459803);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'expiry', 1795322048.4971173);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'accounting', 1795322048.5860014);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'connect_to_job', 1795322048.5855503);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'connect_to_job', 1795322048.6162007);
INSERT INTO public.hooks VALUES ('between-start', 1, 'start', 'miscellaneous', 1795322048.640685);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'ingress', 1795322048.6575904);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'miscellaneous', 1795322048.7047393);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'cost_centre', 1795322048.732674);
INSERT INTO public.hooks VALUES ('evicted', 1, 'start', 'proxy', 1795322048.7570996);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'task', 1795322049.6558728);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'kata_container', 1795322049.6610935);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'file_mount', 1795322049.673009);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'multi_node', 1795322049.6769707);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'shared_memory', 1795322049.687115);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'network_limit', 1795322049.7187765);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'fair_share', 1795322049.7437358);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'expiry', 1795322049.760092);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'connect_to_job', 1795322049.893533);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'ingress', 1795322049.939785);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'minikube', 1795322050.007735);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'cost_centre', 1795322050.0301633);
INSERT INTO public.hooks VALUES ('expiring', 1, 'start', 'proxy', 1795322050.0418928);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'task', 1795322050.5389924);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'kata_container', 1795322050.54112);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'file_mount', 1795322050.5506527);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'multi_node', 1795322050.5526397);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'shared_memory', 1795322050.5665994);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'fair_share', 1795322050.5848405);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'expiry', 1795322050.6015327);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'accounting', 1795322050.6375892);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'ingress', 1795322050.671743);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'miscellaneous', 1795322050.6770146);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'minikube', 1795322050.6835082);
INSERT INTO public.hooks VALUES ('restarting', 1, 'start', 'cost_centre', 1795322050.6988616);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'task', 1795322052.9375246);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'parameter', 1795322052.9608223);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'shared_memory', 1795322052.9859354);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'network_limit', 1795322053.0407796);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'miscellaneous', 1795322053.3063447);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'cost_centre', 1795322053.3446834);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'cost_centre', 1795322053.3766632);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'kata_container', 1795322056.044561);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'file_mount', 1795322056.11127);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'shared_memory', 1795322056.1655319);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'connect_to_job', 1795322056.2929404);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'miscellaneous', 1795322056.302831);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'parameter', 1795322056.516069);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'shared_memory', 1795322056.5657313);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'connect_to_job', 1795322056.635004);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'task', 1795322052.933516);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'parameter', 1795322052.94957);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'multi_node', 1795322052.9666026);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'network_limit', 1795322053.0046196);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'fair_share', 1795322053.0688183);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'connect_to_job', 1795322053.2428114);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'minikube', 1795322053.3595417);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'proxy', 1795322053.4089086);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'expiry', 1795322056.2689888);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'accounting', 1795322056.28764);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'miscellaneous', 1795322056.651268);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'kata_container', 1795322057.436719);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'network_limit', 1795322057.611057);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'connect_to_job', 1795322057.8299222);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'miscellaneous', 1795322057.8711135);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'task', 1795322060.4925508);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'file_mount', 1795322060.5991063);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'network_limit', 1795322060.6654375);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'accounting', 1795322060.7338214);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'cost_centre', 1795322060.893471);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'proxy', 1795322060.9388041);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'kata_container', 1795322052.9501443);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'shared_memory', 1795322053.0138297);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'ingress', 1795322053.2848995);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'minikube', 1795322053.333802);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'fair_share', 1795322056.245543);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'minikube', 1795322056.313322);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'task', 1795322056.477977);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'file_mount', 1795322056.5239015);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'expiry', 1795322056.5977767);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'ingress', 1795322056.6380908);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'parameter', 1795322057.4417233);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'multi_node', 1795322057.4857802);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'cost_centre', 1795322057.892396);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'multi_node', 1795322060.6247473);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'miscellaneous', 1795322060.8089523);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'file_mount', 1795322052.9613128);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'multi_node', 1795322052.9925923);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'expiry', 1795322053.0692084);
INSERT INTO public.hooks VALUES ('canceling', 1, 'start', 'accounting', 1795322053.1693594);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'connect_to_job', 1795322053.3014128);
INSERT INTO public.hooks VALUES ('suspending', 1, 'start', 'miscellaneous', 1795322053.34023);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'parameter', 1795322056.0567257);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'network_limit', 1795322056.2190557);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'ingress', 1795322056.2965574);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'start', 'cost_centre', 1795322056.321326);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'multi_node', 1795322056.5632076);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'fair_share', 1795322056.585895);
INSERT INTO public.hooks VALUES ('between-complete', 1, 'complete', 'accounting', 1795322056.6223202);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'shared_memory', 1795322057.5242262);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'fair_share', 1795322057.651003);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'expiry', 1795322057.7475183);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'accounting', 1795322057.7883148);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'minikube', 1795322057.87818);
INSERT INTO public.hooks VALUES ('canceling', 1, 'complete', 'proxy', 1795322057.9488106);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'kata_container', 1795322060.5264592);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'parameter', 1795322060.5614107);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'shared_memory', 1795322060.6422503);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'fair_share', 1795322060.677294);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'expiry', 1795322060.7128325);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'connect_to_job', 1795322060.7532282);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'ingress', 1795322060.7815275);
INSERT INTO public.hooks VALUES ('expiring', 1, 'complete', 'minikube', 1795322060.8312087);
INSERT INTO public.hubs VALUES ('7f802c70bc23e657', '127.0.0.1', 42003, 1795322023.6236856, 1795322064.4040332);
INSERT INTO public.job_labels VALUES ('pair', 'cost-centre', 'c-pair');
INSERT INTO public.job_labels VALUES ('pair', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('succeeded', 'cost-centre', 'c-succeeded');
INSERT INTO public.job_labels VALUES ('succeeded', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('failed', 'cost-centre', 'c-failed');
INSERT INTO public.job_labels VALUES ('failed', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('expired', 'cost-centre', 'c-expired');
INSERT INTO public.job_labels VALUES ('expired', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('unfunded', 'cost-centre', 'c-unfunded');
INSERT INTO public.job_labels VALUES ('unfunded', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('released', 'cost-centre', 'c-released');
INSERT INTO public.job_labels VALUES ('released', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('web', 'cost-centre', 'c-web');
INSERT INTO public.job_labels VALUES ('web', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('caller', 'cost-centre', 'c-caller');
INSERT INTO public.job_labels VALUES ('caller', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('tasks', 'cost-centre', 'c-tasks');
INSERT INTO public.job_labels VALUES ('tasks', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('resumed', 'cost-centre', 'c-resumed');
INSERT INTO public.job_labels VALUES ('resumed', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('suspended', 'cost-centre', 'c-suspended');
INSERT INTO public.job_labels VALUES ('suspended', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('resuming', 'cost-centre', 'c-resuming');
INSERT INTO public.job_labels VALUES ('resuming', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('queued', 'cost-centre', 'c-queued');
INSERT INTO public.job_labels VALUES ('queued', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('kept', 'cost-centre', 'c-kept');
INSERT INTO public.job_labels VALUES ('kept', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('prepared', 'cost-centre', 'c-prepared');
INSERT INTO public.job_labels VALUES ('prepared', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('restarting', 'cost-centre', 'c-restarting');
INSERT INTO public.job_labels VALUES ('restarting', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('evicted', 'cost-centre', 'c-evicted');
INSERT INTO public.job_labels VALUES ('evicted', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('between-start', 'cost-centre', 'c-between-start');
INSERT INTO public.job_labels VALUES ('between-start', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('between-complete', 'cost-centre', 'c-between-complete');
INSERT INTO public.job_labels VALUES ('between-complete', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('suspending', 'cost-centre', 'c-suspending');
INSERT INTO public.job_labels VALUES ('suspending', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('canceling', 'cost-centre', 'c-canceling');
INSERT INTO public.job_labels VALUES ('canceling', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('expiring', 'cost-centre', 'c-expiring');
INSERT INTO public.job_labels VALUES ('expiring', 'recorded', 'yes');
INSERT INTO public.job_labels VALUES ('accepted', 'cost-centre', 'c-accepted');
INSERT INTO public.job_labels VALUES ('accepted', 'recorded', 'yes');
INSERT INTO public.jobs VALUES ('pair', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "pair", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-pair", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "replicas": 2, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "policies": [{"action": "AbortJob", "event": "PodFailed"}]}', NULL, '\xe18ffd83de80dfdbab8c3fdd0ebb4b6d74f98275c11e281118f2b058221dcf21', 'run', 'RUNNING', NULL, NULL, 1, '890c8442-c284-4345-beef-c0d4b2aa0de8', NULL, 1795322006.7061026, 1795322008, NULL, 1, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.1, 134217728, 0, 0, 0);
INSERT INTO public.jobs VALUES ('failed', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "failed", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-failed", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "exit 3"]}}', NULL, '\xf37cc4ae0f901a2f00283f00ab9d198c90078c61a9f9a7c4679488f03e084e9b', 'run', 'FAILURE', 'exit_code', 'job 0 ended with exit code 3', 1, '55551876-6517-44f2-9dc7-81ac15bfabdf', 'FAILURE', 1795322024.3075018, 1795322025, 1795322027.2104843, 7, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, 'FAILURE', 'exit_code', 'job 0 ended with exit code 3', NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('released', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "released", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-released", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; python3 -m http.server 8000 & wait"]}, "interactive": {"site": {"kind": "web", "port": 8000}}, "links": ["recorded-old-link"]}', NULL, '\xe3de71c6e50f3c801cfb73c6966508ce6605469145299fb7dcc9f02971e95532', 'ended', 'SUCCESS', 'asked', 'ended as asked', 1, 'ec287c2e-c100-4b44-9470-e7cfc948a8f4', 'SUCCESS', 1795322024.930989, 1795322026, 1795322030.806657, 19, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, 'SUCCESS', 'asked', 'ended as asked', NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('succeeded', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "succeeded", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-succeeded", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "sleep 2"]}, "interactive": {"site": {"kind": "web", "port": 8000}}}', NULL, '\x4c7bd9fc58915eab61bbe742c9ad47233cac999b1a6ce791e976a603e8c4cda7', 'run', 'SUCCESS', 'completed', NULL, 1, '7a6bb8f4-611d-4edf-bf7e-1ca1d67a4fab', 'SUCCESS', 1795322023.8173187, 1795322025, 1795322028.8414142, 5, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, 'SUCCESS', 'completed', NULL, NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('expired', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "expired", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-expired", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "time_allocation_seconds": 1, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}', NULL, '\x6a079c150a7b092cfb315d6715fd94572daa112e2b368804a05f1e229b05fba1', 'ended', 'EXPIRED', 'expired', 'its time is over', 1, '11850510-f440-49e9-bf54-3186bcf9cc9c', 'EXPIRED', 1795322024.5655713, 1795322026, 1795322030.306696, 15, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 1, 'EXPIRED', 'expired', 'its time is over', NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('unfunded', 'ada', 'sun', 'fumarole-p-sun-nxn74dtomxynpfrd2tqt', '{"id": "unfunded", "owner": {"user": "ada", "project": "sun"}, "labels": {"cost-centre": "c-unfunded", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}', NULL, '\x40c5445ccd5a26fcf9094ce46a00764d516f8f3b602b69d2ac57101b447e20a5', 'ended', 'FAILURE', 'out_of_funds', 'there are no funds for it any more', 1, '3eed6cb5-e139-4114-8d77-a612fc98eec2', 'FAILURE', 1795322024.7529793, 1795322027, 1795322030.4723227, 18, 'fumarole-p-sun-nxn74dtomxynpfrd2tqt', NULL, 'FAILURE', 'out_of_funds', 'there are no funds for it any more', NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('tasks', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "tasks", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-tasks", "recorded": "yes"}, "tasks": [{"name": "head"}, {"name": "worker", "replicas": 2, "policies": [{"action": "RestartTask", "exit_code": 3}]}], "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "max_retry": 2}', NULL, '\xba7cb96170021055a1579b4ec0f38764671e184c8dfa2e76a72fe7224fb2ca1a', 'run', 'RUNNING', NULL, NULL, 1, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', NULL, 1795322032.0452158, 1795322033, NULL, 32, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.15000000000000002, 201326592, 0, 0, 0);
INSERT INTO public.jobs VALUES ('caller', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "caller", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-caller", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "parameters": {"web": {"type": "peer", "job": "web", "hostname": "web"}}}', NULL, '\x6bfa385419a8d9913b639bfabcbed990bc470d96604e68ac88fe7923e7af31d7', 'run', 'RUNNING', NULL, NULL, 1, '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', NULL, 1795322031.9313555, 1795322034, NULL, 30, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('kept', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "kept", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-kept", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}', NULL, '\xebd596c5fce52d561b14aacc173c019be482442c49f99fe2892c12e5b16edf70', 'suspended', 'SUSPENDED', 'asked', 'suspended as asked', 1, NULL, NULL, 1795322041.9373956, NULL, NULL, 69, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('resuming', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "resuming", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-resuming", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}', NULL, '\xd81f8affc2811a2b9114c4992aec638ed98ebc0c9e7d1e77efe1838458115d24', 'run', 'IN_QUEUE', 'paused', 'an upgrade', 2, NULL, NULL, 1795322032.3961272, 1795322035, NULL, 70, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('evicted', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "evicted", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-evicted", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}', NULL, '\xf3d55bbeae6b5c9226643f34eda5682d4d2f9429a0e974b1a748e159406eb633', 'run', 'IN_QUEUE', 'paused', 'an upgrade', 2, NULL, NULL, 1795322042.452456, 1795322046, NULL, 62, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.05, 67108864, 0, 1, 0);
INSERT INTO public.jobs VALUES ('resumed', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "resumed", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-resumed", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}', NULL, '\xcbbb36103529034678d52cca34e4c3f703da7601751a14f692f6a06d73a7ff77', 'run', 'RUNNING', NULL, NULL, 2, '850da75f-9a76-430b-9132-d3459c7dab51', NULL, 1795322032.1127212, 1795322034, NULL, 40, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('between-complete', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "between-complete", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-between-complete", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}', NULL, '\x31fbe129fc8b3783dba3457921349f86f1e84440b012eb3b674a71fb74e088ed', 'ended', 'CANCELING', 'asked', 'ended as asked', 1, '55c0fdbe-7a7f-4453-b288-5fedb488b844', 'SUCCESS', 1795322042.8336003, 1795322054, NULL, 68, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, 'SUCCESS', 'asked', 'ended as asked', NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('suspended', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "suspended", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-suspended", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "interactive": {"site": {"kind": "web", "port": 8000}}}', NULL, '\x8932dc014b4719af64abb5ffb84e8818346201375af3f03d50c062d3d1f5a225', 'suspended', 'SUSPENDED', 'asked', 'suspended as asked', 1, '394cc3ad-99b6-4e1d-a736-5e8534439d85', NULL, 1795322032.2848814, 1795322034, NULL, 38, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, NULL, NULL, NULL, NULL, true, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('web', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "web", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-web", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "time_allocation_seconds": 36000, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; python3 -m http.server 8000 & wait"]}, "parameters": {"pass": {"type": "secret"}, "greeting": {"type": "text", "value": "hello"}}, "interactive": {"site": {"kind": "web", "port": 8000}, "desk": {"kind": "vnc", "port": 5900, "password": {"parameter": "pass"}}}, "links": ["recorded-demo"]}', '\x744dcca75e531a8ff1113b876cb40d3b734cf05eaf0e63fc973f702a285d75ea36ffe3bf8fc3bc6f84a9fbbf72a681b06e', '\xbd2566158e45f93ea7aaea877b5fa22d6f2ac38ad0aac99f7c8d1c2b6b9fab2a', 'run', 'RUNNING', NULL, NULL, 1, '04d43349-276d-48da-8a45-6b859e8b923d', NULL, 1795322030.892319, 1795322031, NULL, 41, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 36600, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('queued', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "queued", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-queued", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "63900m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "interactive": {"site": {"kind": "web", "port": 8000}}}', NULL, '\x89f0df89e96e4d2498e5cfd326474d4cf01475aec3d82b0a4b1a1bbb1957622b', 'run', 'IN_QUEUE', 'queued', 'waiting in the queue', 1, 'fea1445d-871b-488d-982f-5697db295791', NULL, 1795322040.824772, NULL, NULL, 42, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 63.9, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('prepared', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "prepared", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-prepared", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}, "parameters": {"kept": {"type": "peer", "job": "kept", "hostname": "kept", "ports": [9000]}, "token": {"type": "secret"}}}', '\x58a9b6084e132685d84d5c2e43156d93612ff38170ce279752c31991f6fe794754d06d4b9aa46ed2ffc1a4deb753a2c902ee84f3', '\xa997b7e0fc190492237d75e2c6793ee6cb5a2b513e9b0d32fb84f912f155ac50', 'run', 'IN_QUEUE', 'paused', 'an upgrade', 1, NULL, NULL, 1795322042.1456678, NULL, NULL, 69, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('accepted', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "accepted", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-accepted", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; python3 -m http.server 8000 & wait"]}, "parameters": {"token": {"type": "secret"}}, "interactive": {"site": {"kind": "web", "port": 8000}}, "links": ["recorded-later"]}', '\x76e3286a5a63a01cf133a5f5238e2dabf284ecca29912709b977c607188ae40e694feaf98ef548025259ebed1d793f6841abefa2', '\x197f957924677101052d6f7a209677cf6f1373fd51f94461ac64799b3dd537f9', 'run', 'IN_QUEUE', 'paused', 'an upgrade', 1, NULL, NULL, 1795322056.9916153, NULL, NULL, 72, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('suspending', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "suspending", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-suspending", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sleep", "3600"]}}', NULL, '\x6c50927f658336964c5135bdad28cb02faa7a9f8957bcafb8ceb1633c18849a0', 'suspended', 'RUNNING', 'suspending', 'being suspended', 1, 'af00c63a-66de-42e5-b666-15361fe8ed4d', NULL, 1795322043.1385705, 1795322050, NULL, 74, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, NULL, NULL, NULL, NULL, true, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('between-start', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "between-start", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-between-start", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sh", "-c", "trap ''exit 0'' TERM; sleep 3600 & wait"]}}', NULL, '\xea94d789238c7112204868e7f0efd347d15c74ac12d32e2a8e77de54139cd48e', 'run', 'RUNNING', NULL, NULL, 1, '6b7f8f01-3320-404e-9de5-7766515bb823', NULL, 1795322042.6173527, 1795322046, NULL, 63, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('restarting', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "restarting", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-restarting", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "replicas": 2, "invocation": {"command": ["sleep", "3600"]}, "policies": [{"action": "RestartJob", "event": "PodFailed"}], "max_retry": 3}', NULL, '\x81a463d96e482dd3d39454979e8dfebd116f6a3f5668f4eb2c38082e31aed9bd', 'run', 'IN_QUEUE', 'restarting', 'starting again', 1, '52c27ca5-9b85-4fff-9a4f-9aea450886d3', NULL, 1795322042.331279, 1795322045, NULL, 61, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, NULL, NULL, NULL, NULL, false, NULL, 'null', 0.1, 134217728, 0, 0, 0);
INSERT INTO public.jobs VALUES ('expiring', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "expiring", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-expiring", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "time_allocation_seconds": 12, "invocation": {"command": ["sleep", "3600"]}}', NULL, '\xe3ffe28ff16df58039cee8e4ee8266dc98faa63355d16d40b29721ebf815dde0', 'ended', 'CANCELING', 'expired', 'its time is over', 1, 'ecadbb4a-4233-439b-b30f-c69aa3e49e09', 'EXPIRED', 1795322044.1844127, 1795322047, NULL, 77, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', 12, 'EXPIRED', 'expired', 'its time is over', NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.jobs VALUES ('canceling', 'ada', NULL, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', '{"id": "canceling", "owner": {"user": "ada"}, "labels": {"cost-centre": "c-canceling", "recorded": "yes"}, "image": "busybox", "resources": {"cpu": "50m", "memory": "64Mi"}, "invocation": {"command": ["sleep", "3600"]}}', NULL, '\x1481bc7dcee86cff50b62daeebe79c162fa7867dd3aea3bd4067b2368731837c', 'ended', 'CANCELING', 'asked', 'ended as asked', 1, 'a2b5702f-2d30-4875-a623-91e8bb21f81a', 'SUCCESS', 1795322043.6183565, 1795322050, NULL, 75, 'fumarole-u-ada-nzzpevjjgs77hjpetbm2', NULL, 'SUCCESS', 'asked', 'ended as asked', NULL, false, NULL, 'null', 0.05, 67108864, 0, 0, 0);
INSERT INTO public.leadership VALUES (1, 3, 'vm:18404', 1795322060.8157763);
INSERT INTO public.links VALUES ('recorded-old-link', '{"user":"ada"}', NULL, 1795322030.7292173);
INSERT INTO public.links VALUES ('recorded-demo', '{"user":"ada"}', 'web', NULL);
INSERT INTO public.links VALUES ('recorded-later', '{"user":"ada"}', 'accepted', NULL);
INSERT INTO public.maintenance VALUES (1, 'paused', 'an upgrade', 1795322056.1876912);
INSERT INTO public."position" VALUES (1, 'f99f620bb1bc401af57b955945805f91', 78, '37146b63abdfaae5f970da4ef0ead43c', 30);
INSERT INTO public.revocations VALUES ('jti:recorded-jti', 1795322041.569, 'zurzv5i5smydzeaaq4liai6ygy', 'recorded-jti', NULL, NULL, 50);
INSERT INTO public.revocations VALUES ('sub:zurzv5i5smydzeaaq4liai6ygy:mallory', 1795322041.618, 'zurzv5i5smydzeaaq4liai6ygy', NULL, 'mallory', NULL, 51);
INSERT INTO public.revocations VALUES ('all:jmmpwtuwp3sfbq3j2iffnoipwy', 1795322041.646, 'jmmpwtuwp3sfbq3j2iffnoipwy', NULL, NULL, NULL, 52);
INSERT INTO public.revocations VALUES ('kid:recorded-leaked-key', 1795322041.677, NULL, NULL, NULL, 'recorded-leaked-key', 53);
INSERT INTO public.runs VALUES ('pair', '1252955a-3994-435f-8a7c-2a524606ee67', 1, 0, 'job', 0, 'j-pair-job-0', 'embedded', 'Running', '', '', NULL, NULL, 1795322008.2456145, 1795322008, NULL);
INSERT INTO public.runs VALUES ('pair', 'd3243780-57c3-4a9c-a607-e67ef85b034d', 1, 1, 'job', 1, 'j-pair-job-1', 'embedded', 'Running', '', '', NULL, NULL, 1795322008.3251574, 1795322008, NULL);
INSERT INTO public.runs VALUES ('failed', '5eee676d-f44d-460e-a676-4a325dbce6e7', 1, 0, 'job', 0, 'j-failed-job-0', 'embedded', 'Failed', 'Error', '', 3, 0, 1795322024.8890235, 1795322025, 1795322026);
INSERT INTO public.runs VALUES ('succeeded', '490acd06-f8bc-4337-8e3f-8235a64197b0', 1, 0, 'job', 0, 'j-succeeded-job-0', 'embedded', 'Succeeded', 'Completed', '', 0, 0, 1795322024.665396, 1795322025, 1795322028);
INSERT INTO public.runs VALUES ('expired', '57aebaf0-1f36-450c-8280-5c337e60b46b', 1, 0, 'job', 0, 'j-expired-job-0', 'embedded', 'Succeeded', 'Completed', '', 0, 0, 1795322025.1771781, 1795322026, 1795322029);
INSERT INTO public.runs VALUES ('unfunded', 'bd7afc13-a211-4f4e-9a3d-7e7e094a790c', 1, 0, 'job', 0, 'j-unfunded-job-0', 'embedded', 'Succeeded', 'Completed', '', 0, 0, 1795322026.0653589, 1795322027, 1795322029);
INSERT INTO public.runs VALUES ('released', 'c0456bb3-254d-4d00-9059-12b372a0af60', 1, 0, 'job', 0, 'j-released-job-0', 'embedded', 'Succeeded', 'Completed', '', 0, 0, 1795322025.3861847, 1795322026, 1795322029);
INSERT INTO public.runs VALUES ('web', 'c6e980c7-8f21-4934-aa6b-89348d77eb44', 1, 0, 'job', 0, 'j-web-job-0', 'embedded', 'Running', '', '', NULL, NULL, 1795322031.1339526, 1795322031, NULL);
INSERT INTO public.runs VALUES ('between-start', '3043644c-5592-49bb-929d-86711909a6fb', 1, 0, 'job', 0, 'j-between-start-job-0', 'embedded', 'Running', '', '', NULL, NULL, 1795322043.5615923, 1795322046, NULL);
INSERT INTO public.runs VALUES ('expiring', '37c5a2bc-5e29-4bf7-bf61-196454ccc5b9', 1, 0, 'job', 0, 'j-expiring-job-0', 'embedded', 'Running', '', '', NULL, NULL, 1795322045.2966588, 1795322047, NULL);
INSERT INTO public.runs VALUES ('restarting', '9dc368fb-bbb5-4fa4-9e9a-ab3585a7fea0', 1, 1, 'job', 1, 'j-restarting-job-1', 'embedded', 'Running', '', '', NULL, NULL, 1795322042.8239229, 1795322048, NULL);
INSERT INTO public.runs VALUES ('tasks', '0f2badd9-d73d-485f-86ef-9ccf878c56ef', 1, 1, 'worker', 0, 'j-tasks-worker-0', 'embedded', 'Running', '', '', NULL, NULL, 1795322032.3378794, 1795322033, NULL);
INSERT INTO public.runs VALUES ('tasks', 'da7c9a7b-d8a5-45e9-a573-938f96aa3459', 1, 2, 'worker', 1, 'j-tasks-worker-1', 'embedded', 'Running', '', '', NULL, NULL, 1795322032.3378804, 1795322033, NULL);
INSERT INTO public.runs VALUES ('caller', '5cba0651-18e0-46e4-9cbd-8b59c7a7dbaf', 1, 0, 'job', 0, 'j-caller-job-0', 'embedded', 'Running', '', '', NULL, NULL, 1795322033.118685, 1795322034, NULL);
INSERT INTO public.runs VALUES ('canceling', 'b95c7f9e-6c0c-463f-bf54-37574b423491', 1, 0, 'job', 0, 'j-canceling-job-0', 'embedded', 'Running', '', '', NULL, NULL, 1795322044.9671714, 1795322050, NULL);
INSERT INTO public.runs VALUES ('suspending', 'f520eeff-bb84-46b0-8482-341190ec167f', 1, 0, 'job', 0, 'j-suspending-job-0', 'embedded', 'Running', '', '', NULL, NULL, 1795322044.4476132, 1795322050, NULL);
INSERT INTO public.runs VALUES ('tasks', '3508320d-2f7a-4b8b-a110-5d1da51be571', 1, 0, 'head', 0, 'j-tasks-head-0', 'embedded', 'Running', '', '', NULL, NULL, 1795322032.3004735, 1795322034, NULL);
INSERT INTO public.runs VALUES ('between-complete', '2fbbff72-1103-4456-afa4-19f74326009f', 1, 0, 'job', 0, 'j-between-complete-job-0', 'embedded', 'Running', '', '', NULL, NULL, 1795322044.014997, 1795322054, NULL);
INSERT INTO public.runs VALUES ('resuming', '01018655-48f8-4fcf-805e-092a88175aa4', 1, 0, 'job', 0, 'j-resuming-job-0', 'embedded', 'Succeeded', 'Completed', '', 0, 0, 1795322032.7335505, 1795322035, 1795322037);
INSERT INTO public.runs VALUES ('resumed', '4030301c-9f3e-46eb-afee-875a33c54e86', 1, 0, 'job', 0, 'j-resumed-job-0', 'embedded', 'Succeeded', 'Completed', '', 0, 0, 1795322032.4697237, 1795322034, 1795322037);
INSERT INTO public.runs VALUES ('suspended', '3b1c480e-8e28-4b1b-a928-adc21c46aef6', 1, 0, 'job', 0, 'j-suspended-job-0', 'embedded', 'Succeeded', 'Completed', '', 0, 0, 1795322032.6299074, 1795322034, 1795322037);
INSERT INTO public.runs VALUES ('resumed', '336d0294-b2c2-477e-bb87-e0de1f478071', 2, 0, 'job', 0, 'j-resumed-job-0', 'embedded', 'Running', '', '', NULL, NULL, 1795322038.7412996, 1795322039, NULL);
INSERT INTO public.runs VALUES ('evicted', '3b5155fe-0074-47de-8e01-55f8df01533a', 1, 0, 'job', 0, 'j-evicted-job-0', 'embedded', 'Failed', 'Evicted', 'the node was low on disk', NULL, NULL, 1795322042.974789, 1795322046, 1795322056.3640857);
INSERT INTO public.runs VALUES ('restarting', '0f52425a-9673-4024-a80f-987bb000d5ee', 1, 0, 'job', 0, 'j-restarting-job-0', 'embedded', 'Failed', '', '', NULL, NULL, 1795322042.823922, 1795322045, 1795322057.497697);
INSERT INTO public.sessions VALUES ('mmqd2aow7cwid6lydprglgspme', 'released', 0, 'web', 'site', 8000, '/', 1795322024.930989, 1795322028.4257312, 'job ended', NULL, NULL, NULL, 20, '["recorded-old-link"]');
INSERT INTO public.sessions VALUES ('hneyi2d6eyg4xc6lnvnpoobyd4', 'succeeded', 0, 'web', 'site', 8000, '/', 1795322023.9739513, 1795322028.6922247, 'job ended', NULL, NULL, NULL, 22, 'null');
INSERT INTO public.sessions VALUES ('wd4fij2wlckpwhc3uxx3iuq5d4', 'web', 0, 'web', 'site', 8000, '/', 1795322030.892319, NULL, NULL, NULL, NULL, NULL, 29, '["recorded-demo"]');
INSERT INTO public.sessions VALUES ('2acvqhkfpluxq6mxhy76xex3qm', 'web', 0, 'web', 'site', 8000, '/', 1795322041.1772478, NULL, NULL, NULL, NULL, NULL, 43, 'null');
INSERT INTO public.sessions VALUES ('zurzv5i5smydzeaaq4liai6ygy', 'web', 0, 'web', 'site', 8000, '/', 1795322041.2974894, NULL, NULL, NULL, NULL, NULL, 44, 'null');
INSERT INTO public.sessions VALUES ('jmmpwtuwp3sfbq3j2iffnoipwy', 'web', 0, 'vnc', 'desk', 5900, '/', 1795322041.3452876, NULL, NULL, NULL, NULL, NULL, 45, 'null');
INSERT INTO public.sessions VALUES ('fqrwm33n3apauywft3lwpmq6zm', 'web', 0, 'terminal', NULL, NULL, '/', 1795322041.3862534, NULL, NULL, '7f802c70bc23e657', 'j-web-job-0', 'c6e980c7-8f21-4934-aa6b-89348d77eb44', 46, 'null');
INSERT INTO public.sessions VALUES ('algfvry32shqcf7y5bx7rdsq5a', 'queued', 0, 'web', 'site', 8000, '/', 1795322041.4475663, NULL, NULL, NULL, NULL, NULL, 47, 'null');
INSERT INTO public.sessions VALUES ('7rxwzqlvqzh5hwhaktza3o7gfa', 'suspended', 0, 'web', 'site', 8000, '/', 1795322041.4937546, NULL, NULL, NULL, NULL, NULL, 48, 'null');
INSERT INTO public.sessions VALUES ('y7d453j4uzvkffmflnitx5w2nu', 'web', 0, 'web', 'site', 8000, '/', 1795322041.5237074, 1795322041.7055228, 'ended', NULL, NULL, NULL, 54, 'null');
INSERT INTO public.sessions VALUES ('ijjkozl6yw5xrqkbt46mxftnn4', 'accepted', 0, 'web', 'site', 8000, '/', 1795322056.9916153, NULL, NULL, NULL, NULL, NULL, 73, '["recorded-later"]');
INSERT INTO public.tombstones VALUES ('forgotten', '996b7a6d-e714-41d4-84e4-193ac6714d81', 1795322015.6088467);
INSERT INTO public.transitions VALUES (1, 'pair', 1, 1795322006.7061026, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (3, 'pair', 1, 1795322007.2125216, 'IN_QUEUE', 'preparing', 'the queue fumarole-u-ada-nzzpevjjgs77hjpetbm2 is not open', 'null');
INSERT INTO public.transitions VALUES (5, 'pair', 1, 1795322008.0954034, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (7, 'pair', 1, 1795322008.4740942, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (9, 'pair', 1, 1795322009.2767422, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (12, 'succeeded', 1, 1795322023.8173187, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (13, 'failed', 1, 1795322024.3075018, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (14, 'expired', 1, 1795322024.5655713, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (15, 'succeeded', 1, 1795322024.618875, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (16, 'unfunded', 1, 1795322024.7529793, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (17, 'succeeded', 1, 1795322024.8222713, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (18, 'failed', 1, 1795322024.8677568, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (19, 'failed', 1, 1795322024.9314718, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (20, 'released', 1, 1795322024.930989, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (21, 'expired', 1, 1795322025.0666277, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (22, 'unfunded', 1, 1795322025.1968045, 'IN_QUEUE', 'preparing', 'the queue fumarole-p-sun-nxn74dtomxynpfrd2tqt is not open', 'null');
INSERT INTO public.transitions VALUES (23, 'expired', 1, 1795322025.2480297, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (24, 'released', 1, 1795322025.3423634, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (25, 'released', 1, 1795322025.4951022, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (26, 'succeeded', 1, 1795322025.5769184, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (27, 'unfunded', 1, 1795322025.9984043, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (28, 'unfunded', 1, 1795322026.1100705, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (29, 'failed', 1, 1795322026.2725031, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (30, 'expired', 1, 1795322026.9620807, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (31, 'failed', 1, 1795322027.2334242, 'FAILURE', 'exit_code', 'job 0 ended with exit code 3', '[{"rank": 0, "exit_code": 3, "signal": 0, "reason": "Error", "node": "embedded"}]');
INSERT INTO public.transitions VALUES (32, 'expired', 1, 1795322027.3787894, 'CANCELING', 'expired', 'its time is over', 'null');
INSERT INTO public.transitions VALUES (33, 'released', 1, 1795322027.402378, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (34, 'unfunded', 1, 1795322027.9021263, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (35, 'unfunded', 1, 1795322028.0491784, 'CANCELING', 'out_of_funds', 'there are no funds for it any more', 'null');
INSERT INTO public.transitions VALUES (36, 'released', 1, 1795322028.1214557, 'CANCELING', 'asked', 'ended as asked', 'null');
INSERT INTO public.transitions VALUES (37, 'succeeded', 1, 1795322028.8455887, 'SUCCESS', 'completed', NULL, '[{"rank": 0, "exit_code": 0, "signal": 0, "reason": "Completed", "node": "embedded"}]');
INSERT INTO public.transitions VALUES (38, 'expired', 1, 1795322030.3173578, 'EXPIRED', 'expired', 'its time is over', '[{"rank": 0, "exit_code": 0, "signal": 0, "reason": "Completed", "node": "embedded"}]');
INSERT INTO public.transitions VALUES (39, 'unfunded', 1, 1795322030.4747193, 'FAILURE', 'out_of_funds', 'there are no funds for it any more', '[{"rank": 0, "exit_code": 0, "signal": 0, "reason": "Completed", "node": "embedded"}]');
INSERT INTO public.transitions VALUES (40, 'released', 1, 1795322030.820961, 'SUCCESS', 'asked', 'ended as asked', '[{"rank": 0, "exit_code": 0, "signal": 0, "reason": "Completed", "node": "embedded"}]');
INSERT INTO public.transitions VALUES (41, 'web', 1, 1795322030.892319, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (42, 'web', 1, 1795322031.0810277, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (43, 'web', 1, 1795322031.173791, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (44, 'web', 1, 1795322031.8207655, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (45, 'caller', 1, 1795322031.9313555, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (46, 'tasks', 1, 1795322032.0452158, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (47, 'caller', 1, 1795322032.0947337, 'IN_QUEUE', 'preparing', 'waiting for the address of the job web', 'null');
INSERT INTO public.transitions VALUES (48, 'resumed', 1, 1795322032.1127212, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (49, 'tasks', 1, 1795322032.2591772, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (50, 'suspended', 1, 1795322032.2848814, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (51, 'tasks', 1, 1795322032.3739798, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (52, 'resuming', 1, 1795322032.3961272, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (53, 'resumed', 1, 1795322032.4486957, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (54, 'resumed', 1, 1795322032.5264149, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (55, 'suspended', 1, 1795322032.5512087, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (56, 'resuming', 1, 1795322032.683917, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (57, 'suspended', 1, 1795322032.7608151, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (58, 'resuming', 1, 1795322032.8208888, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (59, 'caller', 1, 1795322033.088704, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (60, 'caller', 1, 1795322033.1344926, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (61, 'caller', 1, 1795322034.280648, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (62, 'resumed', 1, 1795322034.8829288, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (63, 'suspended', 1, 1795322034.990656, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (64, 'tasks', 1, 1795322035.1167617, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (65, 'resuming', 1, 1795322035.8332868, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (66, 'resumed', 1, 1795322035.9225147, 'RUNNING', 'suspending', 'being suspended', 'null');
INSERT INTO public.transitions VALUES (67, 'suspended', 1, 1795322035.9544003, 'RUNNING', 'suspending', 'being suspended', 'null');
INSERT INTO public.transitions VALUES (68, 'resuming', 1, 1795322035.9900017, 'RUNNING', 'suspending', 'being suspended', 'null');
INSERT INTO public.transitions VALUES (69, 'resuming', 1, 1795322038.1276288, 'SUSPENDED', 'asked', 'suspended as asked', 'null');
INSERT INTO public.transitions VALUES (70, 'resumed', 1, 1795322038.1521893, 'SUSPENDED', 'asked', 'suspended as asked', 'null');
INSERT INTO public.transitions VALUES (71, 'suspended', 1, 1795322038.3917913, 'SUSPENDED', 'asked', 'suspended as asked', 'null');
INSERT INTO public.transitions VALUES (72, 'resumed', 1, 1795322038.438402, 'IN_QUEUE', 'resumed', 'resumed, and submitted again', 'null');
INSERT INTO public.transitions VALUES (73, 'resumed', 2, 1795322038.5487945, 'IN_QUEUE', 'resumed', 'resumed, and submitted again', 'null');
INSERT INTO public.transitions VALUES (74, 'resumed', 2, 1795322038.6890013, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (76, 'resumed', 2, 1795322040.5377676, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (75, 'resumed', 2, 1795322038.7617388, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (77, 'queued', 1, 1795322040.824772, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (83, 'restarting', 1, 1795322042.331279, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (85, 'between-start', 1, 1795322042.6173527, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (87, 'evicted', 1, 1795322042.869677, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (94, 'between-complete', 1, 1795322043.8277903, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (78, 'queued', 1, 1795322041.1211257, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (79, 'kept', 1, 1795322041.9373956, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (90, 'suspending', 1, 1795322043.1385705, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (93, 'canceling', 1, 1795322043.6183565, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (96, 'expiring', 1, 1795322044.1844127, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (99, 'suspending', 1, 1795322044.7363257, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (106, 'expiring', 1, 1795322049.5279536, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (116, 'resuming', 1, 1795322056.8255603, 'IN_QUEUE', 'resumed', 'resumed, and submitted again', 'null');
INSERT INTO public.transitions VALUES (119, 'accepted', 1, 1795322056.9916153, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (123, 'restarting', 1, 1795322057.722654, 'IN_QUEUE', 'restarting', 'starting again', 'null');
INSERT INTO public.transitions VALUES (80, 'kept', 1, 1795322042.0246809, 'SUSPENDED', 'asked', 'suspended as asked', 'null');
INSERT INTO public.transitions VALUES (81, 'prepared', 1, 1795322042.1456678, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (82, 'prepared', 1, 1795322042.2520185, 'IN_QUEUE', 'preparing', 'waiting for the address of the job kept', 'null');
INSERT INTO public.transitions VALUES (86, 'restarting', 1, 1795322042.7278283, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (91, 'evicted', 1, 1795322043.2146592, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (100, 'canceling', 1, 1795322044.8305216, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (101, 'expiring', 1, 1795322045.1329558, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (104, 'between-start', 1, 1795322047.898825, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (107, 'restarting', 1, 1795322050.4755902, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (108, 'canceling', 1, 1795322052.809148, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (114, 'evicted', 2, 1795322056.6816974, 'IN_QUEUE', 'evicted', 'job 0 was evicted: the node was low on disk; submitted again', 'null');
INSERT INTO public.transitions VALUES (122, 'canceling', 1, 1795322057.3001177, 'CANCELING', 'asked', 'ended as asked', 'null');
INSERT INTO public.transitions VALUES (84, 'evicted', 1, 1795322042.452456, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (88, 'between-complete', 1, 1795322042.8336003, 'IN_QUEUE', 'submitting', 'being submitted', 'null');
INSERT INTO public.transitions VALUES (89, 'restarting', 1, 1795322042.9482625, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (92, 'between-start', 1, 1795322043.290687, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (95, 'between-start', 1, 1795322043.909638, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (97, 'between-complete', 1, 1795322044.2527387, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (98, 'suspending', 1, 1795322044.2701116, 'IN_QUEUE', 'queued', 'waiting in the queue', 'null');
INSERT INTO public.transitions VALUES (102, 'canceling', 1, 1795322045.2528355, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (103, 'expiring', 1, 1795322045.4661937, 'IN_QUEUE', 'preparing', 'preparing the container', 'null');
INSERT INTO public.transitions VALUES (105, 'evicted', 1, 1795322047.9169037, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (109, 'suspending', 1, 1795322052.8836477, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (110, 'between-complete', 1, 1795322055.9984522, 'RUNNING', NULL, NULL, 'null');
INSERT INTO public.transitions VALUES (111, 'between-complete', 1, 1795322056.0671678, 'CANCELING', 'asked', 'ended as asked', 'null');
INSERT INTO public.transitions VALUES (112, 'evicted', 1, 1795322056.460901, 'IN_QUEUE', 'evicted', 'job 0 was evicted: the node was low on disk; submitted again', 'null');
INSERT INTO public.transitions VALUES (113, 'prepared', 1, 1795322056.668629, 'IN_QUEUE', 'paused', 'an upgrade', 'null');
INSERT INTO public.transitions VALUES (115, 'evicted', 2, 1795322056.684596, 'IN_QUEUE', 'paused', 'an upgrade', 'null');
INSERT INTO public.transitions VALUES (117, 'resuming', 2, 1795322056.8893855, 'IN_QUEUE', 'resumed', 'resumed, and submitted again', 'null');
INSERT INTO public.transitions VALUES (118, 'resuming', 2, 1795322056.897792, 'IN_QUEUE', 'paused', 'an upgrade', 'null');
INSERT INTO public.transitions VALUES (120, 'accepted', 1, 1795322057.0047297, 'IN_QUEUE', 'paused', 'an upgrade', 'null');
INSERT INTO public.transitions VALUES (121, 'suspending', 1, 1795322057.1710846, 'RUNNING', 'suspending', 'being suspended', 'null');
INSERT INTO public.transitions VALUES (124, 'expiring', 1, 1795322060.2612212, 'CANCELING', 'expired', 'its time is over', 'null');
INSERT INTO public.usage VALUES (1, 'forgotten', 'ada', NULL, '996b7a6d-e714-41d4-84e4-193ac6714d81', 1, 0, 0, 1795322009, 0, true, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322009.9789662);
INSERT INTO public.usage VALUES (2, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 0, 0, 1795322013, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322016.7492936);
INSERT INTO public.usage VALUES (3, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 1, 0, 1795322013, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322016.7494285);
INSERT INTO public.usage VALUES (4, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 0, 1, 1795322018, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322024.2727203);
INSERT INTO public.usage VALUES (5, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 0, 2, 1795322023, 15, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322024.2728426);
INSERT INTO public.usage VALUES (6, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 1, 1, 1795322018, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322024.2728803);
INSERT INTO public.usage VALUES (7, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 1, 2, 1795322023, 15, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322024.2729356);
INSERT INTO public.usage VALUES (8, 'failed', 'ada', NULL, '55551876-6517-44f2-9dc7-81ac15bfabdf', 1, 0, 0, 1795322026, 1, true, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322027.0270941);
INSERT INTO public.usage VALUES (9, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 0, 3, 1795322028, 20, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322028.3730276);
INSERT INTO public.usage VALUES (10, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 1, 3, 1795322028, 20, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322028.3731377);
INSERT INTO public.usage VALUES (11, 'succeeded', 'ada', NULL, '7a6bb8f4-611d-4edf-bf7e-1ca1d67a4fab', 1, 0, 0, 1795322028, 3, true, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322028.7699168);
INSERT INTO public.usage VALUES (12, 'expired', 'ada', NULL, '11850510-f440-49e9-bf54-3186bcf9cc9c', 1, 0, 0, 1795322029, 3, true, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322030.1299486);
INSERT INTO public.usage VALUES (13, 'unfunded', 'ada', 'sun', '3eed6cb5-e139-4114-8d77-a612fc98eec2', 1, 0, 0, 1795322029, 2, true, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322030.3851614);
INSERT INTO public.usage VALUES (14, 'released', 'ada', NULL, 'ec287c2e-c100-4b44-9470-e7cfc948a8f4', 1, 0, 0, 1795322029, 3, true, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322030.6940768);
INSERT INTO public.usage VALUES (15, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 0, 4, 1795322033, 25, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322033.495294);
INSERT INTO public.usage VALUES (16, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 1, 4, 1795322033, 25, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322033.4953477);
INSERT INTO public.usage VALUES (17, 'web', 'ada', NULL, '04d43349-276d-48da-8a45-6b859e8b923d', 1, 0, 0, 1795322036, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322036.5514247);
INSERT INTO public.usage VALUES (18, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 0, 5, 1795322038, 30, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322038.0781527);
INSERT INTO public.usage VALUES (19, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 1, 5, 1795322038, 30, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322038.0782042);
INSERT INTO public.usage VALUES (20, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 0, 0, 1795322038, 4, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322038.083648);
INSERT INTO public.usage VALUES (21, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 1, 0, 1795322038, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322038.0837007);
INSERT INTO public.usage VALUES (22, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 2, 0, 1795322038, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322038.0837362);
INSERT INTO public.usage VALUES (23, 'resumed', 'ada', NULL, '359e8b5e-94d7-482d-ab9b-fc0d7603d2eb', 1, 0, 0, 1795322037, 3, true, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322039.1272407);
INSERT INTO public.usage VALUES (24, 'caller', 'ada', NULL, '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', 1, 0, 0, 1795322039, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322039.1440759);
INSERT INTO public.usage VALUES (25, 'suspended', 'ada', NULL, '394cc3ad-99b6-4e1d-a736-5e8534439d85', 1, 0, 0, 1795322039, 3, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322039.1525826);
INSERT INTO public.usage VALUES (26, 'resuming', 'ada', NULL, 'de01edb7-d26f-4e25-9d3b-5ae1582da992', 1, 0, 0, 1795322040, 2, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322040.1254973);
INSERT INTO public.usage VALUES (27, 'web', 'ada', NULL, '04d43349-276d-48da-8a45-6b859e8b923d', 1, 0, 1, 1795322041, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322041.234313);
INSERT INTO public.usage VALUES (28, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 0, 6, 1795322043, 35, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322043.6582708);
INSERT INTO public.usage VALUES (29, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 1, 6, 1795322043, 35, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322043.6583588);
INSERT INTO public.usage VALUES (30, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 0, 1, 1795322043, 9, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322043.8652253);
INSERT INTO public.usage VALUES (31, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 1, 1, 1795322043, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322043.8653347);
INSERT INTO public.usage VALUES (32, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 2, 1, 1795322043, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322043.8654494);
INSERT INTO public.usage VALUES (33, 'caller', 'ada', NULL, '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', 1, 0, 1, 1795322044, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322044.9619381);
INSERT INTO public.usage VALUES (34, 'resumed', 'ada', NULL, '850da75f-9a76-430b-9132-d3459c7dab51', 2, 0, 0, 1795322044, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322045.1805708);
INSERT INTO public.usage VALUES (35, 'suspended', 'ada', NULL, '394cc3ad-99b6-4e1d-a736-5e8534439d85', 1, 0, 1, 1795322044, 3, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322045.2852764);
INSERT INTO public.usage VALUES (36, 'resuming', 'ada', NULL, 'de01edb7-d26f-4e25-9d3b-5ae1582da992', 1, 0, 1, 1795322045, 2, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322045.6735392);
INSERT INTO public.usage VALUES (37, 'web', 'ada', NULL, '04d43349-276d-48da-8a45-6b859e8b923d', 1, 0, 2, 1795322046, 15, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322046.181178);
INSERT INTO public.usage VALUES (38, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 0, 7, 1795322048, 40, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322048.5251906);
INSERT INTO public.usage VALUES (39, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 1, 7, 1795322048, 40, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322048.5253189);
INSERT INTO public.usage VALUES (40, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 0, 2, 1795322048, 14, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322048.6294258);
INSERT INTO public.usage VALUES (41, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 1, 2, 1795322048, 15, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322048.6294894);
INSERT INTO public.usage VALUES (42, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 2, 2, 1795322048, 15, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322048.6295283);
INSERT INTO public.usage VALUES (43, 'caller', 'ada', NULL, '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', 1, 0, 2, 1795322049, 15, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322049.4407163);
INSERT INTO public.usage VALUES (44, 'resumed', 'ada', NULL, '850da75f-9a76-430b-9132-d3459c7dab51', 2, 0, 1, 1795322049, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322049.4895742);
INSERT INTO public.usage VALUES (45, 'suspended', 'ada', NULL, '394cc3ad-99b6-4e1d-a736-5e8534439d85', 1, 0, 2, 1795322049, 3, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322049.5383346);
INSERT INTO public.usage VALUES (46, 'resuming', 'ada', NULL, 'de01edb7-d26f-4e25-9d3b-5ae1582da992', 1, 0, 2, 1795322050, 2, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322050.4704485);
INSERT INTO public.usage VALUES (47, 'restarting', 'ada', NULL, '52c27ca5-9b85-4fff-9a4f-9aea450886d3', 1, 0, 0, 1795322050, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322050.622252);
INSERT INTO public.usage VALUES (48, 'restarting', 'ada', NULL, '52c27ca5-9b85-4fff-9a4f-9aea450886d3', 1, 1, 0, 1795322050, 2, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322050.622391);
INSERT INTO public.usage VALUES (53, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 0, 8, 1795322053, 45, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322053.8860304);
INSERT INTO public.usage VALUES (54, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 1, 8, 1795322053, 45, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322053.88609);
INSERT INTO public.usage VALUES (59, 'resumed', 'ada', NULL, '850da75f-9a76-430b-9132-d3459c7dab51', 2, 0, 2, 1795322054, 15, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322054.7919052);
INSERT INTO public.usage VALUES (64, 'resuming', 'ada', NULL, 'de01edb7-d26f-4e25-9d3b-5ae1582da992', 1, 0, 3, 1795322055, 2, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322055.2886646);
INSERT INTO public.usage VALUES (67, 'evicted', 'ada', NULL, '90270aa8-0254-4661-8025-3222b7f3f565', 1, 0, 1, 1795322056, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322056.2985506);
INSERT INTO public.usage VALUES (77, 'caller', 'ada', NULL, '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', 1, 0, 4, 1795322059, 25, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322060.7183857);
INSERT INTO public.usage VALUES (79, 'suspended', 'ada', NULL, '394cc3ad-99b6-4e1d-a736-5e8534439d85', 1, 0, 4, 1795322059, 3, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322060.868817);
INSERT INTO public.usage VALUES (82, 'suspending', 'ada', NULL, 'af00c63a-66de-42e5-b666-15361fe8ed4d', 1, 0, 1, 1795322060, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322061.0181458);
INSERT INTO public.usage VALUES (85, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 0, 10, 1795322063, 55, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322063.6235428);
INSERT INTO public.usage VALUES (86, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 1, 10, 1795322063, 55, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322063.6236649);
INSERT INTO public.usage VALUES (49, 'between-start', 'ada', NULL, '6b7f8f01-3320-404e-9de5-7766515bb823', 1, 0, 0, 1795322051, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322051.641747);
INSERT INTO public.usage VALUES (60, 'suspended', 'ada', NULL, '394cc3ad-99b6-4e1d-a736-5e8534439d85', 1, 0, 3, 1795322054, 3, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322054.8160913);
INSERT INTO public.usage VALUES (61, 'canceling', 'ada', NULL, 'a2b5702f-2d30-4875-a623-91e8bb21f81a', 1, 0, 0, 1795322055, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322055.200312);
INSERT INTO public.usage VALUES (68, 'web', 'ada', NULL, '04d43349-276d-48da-8a45-6b859e8b923d', 1, 0, 4, 1795322056, 25, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322056.3008306);
INSERT INTO public.usage VALUES (83, 'between-start', 'ada', NULL, '6b7f8f01-3320-404e-9de5-7766515bb823', 1, 0, 2, 1795322061, 15, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322061.4973972);
INSERT INTO public.usage VALUES (91, 'resumed', 'ada', NULL, '850da75f-9a76-430b-9132-d3459c7dab51', 2, 0, 4, 1795322064, 25, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322064.6690114);
INSERT INTO public.usage VALUES (50, 'evicted', 'ada', NULL, '90270aa8-0254-4661-8025-3222b7f3f565', 1, 0, 0, 1795322051, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322051.7211637);
INSERT INTO public.usage VALUES (52, 'expiring', 'ada', NULL, 'ecadbb4a-4233-439b-b30f-c69aa3e49e09', 1, 0, 0, 1795322052, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322052.6666954);
INSERT INTO public.usage VALUES (55, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 0, 3, 1795322053, 19, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322054.0091662);
INSERT INTO public.usage VALUES (56, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 1, 3, 1795322053, 20, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322054.0092263);
INSERT INTO public.usage VALUES (57, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 2, 3, 1795322053, 20, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322054.0092623);
INSERT INTO public.usage VALUES (58, 'caller', 'ada', NULL, '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', 1, 0, 3, 1795322054, 20, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322054.761362);
INSERT INTO public.usage VALUES (62, 'restarting', 'ada', NULL, '52c27ca5-9b85-4fff-9a4f-9aea450886d3', 1, 0, 1, 1795322055, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322055.2200108);
INSERT INTO public.usage VALUES (63, 'restarting', 'ada', NULL, '52c27ca5-9b85-4fff-9a4f-9aea450886d3', 1, 1, 1, 1795322055, 7, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322055.2200968);
INSERT INTO public.usage VALUES (65, 'suspending', 'ada', NULL, 'af00c63a-66de-42e5-b666-15361fe8ed4d', 1, 0, 0, 1795322055, 5, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322055.3289676);
INSERT INTO public.usage VALUES (51, 'web', 'ada', NULL, '04d43349-276d-48da-8a45-6b859e8b923d', 1, 0, 3, 1795322051, 20, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322051.7611294);
INSERT INTO public.usage VALUES (66, 'between-start', 'ada', NULL, '6b7f8f01-3320-404e-9de5-7766515bb823', 1, 0, 1, 1795322056, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322056.2960074);
INSERT INTO public.usage VALUES (69, 'evicted', 'ada', NULL, '90270aa8-0254-4661-8025-3222b7f3f565', 1, 0, 2, 1795322056.3640857, 10.364085674285889, true, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322057.3815398);
INSERT INTO public.usage VALUES (70, 'resuming', 'ada', NULL, 'de01edb7-d26f-4e25-9d3b-5ae1582da992', 1, 0, 4, 1795322037, 2, true, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322057.4671094);
INSERT INTO public.usage VALUES (71, 'expiring', 'ada', NULL, 'ecadbb4a-4233-439b-b30f-c69aa3e49e09', 1, 0, 1, 1795322057, 10, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322057.5235064);
INSERT INTO public.usage VALUES (72, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 0, 9, 1795322058, 50, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322058.582828);
INSERT INTO public.usage VALUES (73, 'pair', 'ada', NULL, '890c8442-c284-4345-beef-c0d4b2aa0de8', 1, 1, 9, 1795322058, 50, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322058.5829265);
INSERT INTO public.usage VALUES (74, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 0, 4, 1795322058, 24, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322058.709927);
INSERT INTO public.usage VALUES (75, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 1, 4, 1795322058, 25, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322058.7100315);
INSERT INTO public.usage VALUES (76, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 2, 4, 1795322058, 25, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322058.7100897);
INSERT INTO public.usage VALUES (78, 'resumed', 'ada', NULL, '850da75f-9a76-430b-9132-d3459c7dab51', 2, 0, 3, 1795322059, 20, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322060.793599);
INSERT INTO public.usage VALUES (80, 'restarting', 'ada', NULL, '52c27ca5-9b85-4fff-9a4f-9aea450886d3', 1, 0, 2, 1795322060, 12.497697114944458, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322060.9610415);
INSERT INTO public.usage VALUES (81, 'restarting', 'ada', NULL, '52c27ca5-9b85-4fff-9a4f-9aea450886d3', 1, 1, 2, 1795322060, 12, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322060.9611228);
INSERT INTO public.usage VALUES (84, 'web', 'ada', NULL, '04d43349-276d-48da-8a45-6b859e8b923d', 1, 0, 5, 1795322061, 30, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322061.5332701);
INSERT INTO public.usage VALUES (87, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 0, 5, 1795322063, 29, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322063.6578634);
INSERT INTO public.usage VALUES (88, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 1, 5, 1795322063, 30, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322063.6579342);
INSERT INTO public.usage VALUES (89, 'tasks', 'ada', NULL, 'c451e52d-a032-440e-8ef7-d57f552f9ea1', 1, 2, 5, 1795322063, 30, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322063.6579835);
INSERT INTO public.usage VALUES (90, 'caller', 'ada', NULL, '0a7c453d-d3dd-4905-b5d2-edc63c393a1c', 1, 0, 5, 1795322064, 30, false, NULL, 'null', '{"cpu": "50m", "memory": "64Mi"}', 1795322064.617089);
INSERT INTO public.volcano VALUES (1, '2315af0b0b7a537122d1bdb158e8cb7e91ae3a8f0fa656271986baaa3cc2c33a', '{"properties": {"spec": {"properties": {"schedulerName": {"maxLength": 63}, "queue": {"maxLength": 63}, "minAvailable": {"minimum": 0}, "minSuccess": {"minimum": 1}, "maxRetry": {"minimum": 0}, "ttlSecondsAfterFinished": {"minimum": 0}, "priorityClassName": {"maxLength": 253}, "runningEstimate": {}, "policies": {"items": {"properties": {"action": {}, "event": {"enum": ["*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed", "OutOfSync", "CommandIssued", "JobUpdated"]}, "events": {"items": {"enum": ["*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed", "OutOfSync", "CommandIssued", "JobUpdated"]}}, "exitCode": {}, "timeout": {}}}}, "plugins": {"additionalProperties": {"items": {}}}, "volumes": {"items": {"properties": {"mountPath": {"pattern": "^[^:]*$"}, "volumeClaimName": {}, "volumeClaim": {"x-kubernetes-preserve-unknown-fields": true}}}}, "networkTopology": {"properties": {"mode": {"enum": ["hard", "soft"]}, "highestTierAllowed": {}, "highestTierName": {}}}, "tasks": {"items": {"properties": {"name": {"maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}, "replicas": {"minimum": 0}, "minAvailable": {"minimum": 0}, "template": {"properties": {"metadata": {"properties": {"name": {}, "namespace": {}, "labels": {"additionalProperties": {}}, "annotations": {"additionalProperties": {}}, "finalizers": {"items": {}}}}, "spec": {"x-kubernetes-preserve-unknown-fields": true}}}, "policies": {"items": {"properties": {"action": {}, "event": {"enum": ["*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed", "OutOfSync", "CommandIssued", "JobUpdated"]}, "events": {"items": {"enum": ["*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed", "OutOfSync", "CommandIssued", "JobUpdated"]}}, "exitCode": {}, "timeout": {}}}}, "maxRetry": {"minimum": 0}, "dependsOn": {"properties": {"name": {"items": {}}, "iteration": {}}}, "topologyPolicy": {"enum": ["none", "best-effort", "restricted", "single-numa-node"]}, "partitionPolicy": {"properties": {"totalPartitions": {"minimum": 1}, "partitionSize": {"minimum": 1}, "minPartitions": {"minimum": 1}, "networkTopology": {"properties": {"mode": {"enum": ["hard", "soft"]}, "highestTierAllowed": {}, "highestTierName": {}}}}}}}}}}}}');
SELECT pg_catalog.setval('public.transitions_id_seq', 1, false);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT pk_attempts PRIMARY KEY (job_id, attempt);
ALTER TABLE ONLY public.companions
    ADD CONSTRAINT pk_companions PRIMARY KEY (job_id, kind, namespace, name);
ALTER TABLE ONLY public.connections
    ADD CONSTRAINT pk_connections PRIMARY KEY (job_id, peer_id);
ALTER TABLE ONLY public.counters
    ADD CONSTRAINT pk_counters PRIMARY KEY (name);
ALTER TABLE ONLY public.due
    ADD CONSTRAINT pk_due PRIMARY KEY (job_id, plugin);
ALTER TABLE ONLY public.extensions
    ADD CONSTRAINT pk_extensions PRIMARY KEY (job_id, key);
ALTER TABLE ONLY public.hooks
    ADD CONSTRAINT pk_hooks PRIMARY KEY (job_id, attempt, hook, plugin);
ALTER TABLE ONLY public.hubs
    ADD CONSTRAINT pk_hubs PRIMARY KEY (id);
ALTER TABLE ONLY public.job_labels
    ADD CONSTRAINT pk_job_labels PRIMARY KEY (job_id, name);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT pk_jobs PRIMARY KEY (id);
ALTER TABLE ONLY public.leadership
    ADD CONSTRAINT pk_leadership PRIMARY KEY (id);
ALTER TABLE ONLY public.links
    ADD CONSTRAINT pk_links PRIMARY KEY (name);
ALTER TABLE ONLY public.maintenance
    ADD CONSTRAINT pk_maintenance PRIMARY KEY (id);
ALTER TABLE ONLY public."position"
    ADD CONSTRAINT pk_position PRIMARY KEY (id);
ALTER TABLE ONLY public.revocations
    ADD CONSTRAINT pk_revocations PRIMARY KEY (member);
ALTER TABLE ONLY public.runs
    ADD CONSTRAINT pk_runs PRIMARY KEY (job_id, pod_uid);
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT pk_sessions PRIMARY KEY (sid);
ALTER TABLE ONLY public.tombstones
    ADD CONSTRAINT pk_tombstones PRIMARY KEY (job_id, uid);
ALTER TABLE ONLY public.transitions
    ADD CONSTRAINT pk_transitions PRIMARY KEY (id);
ALTER TABLE ONLY public.usage
    ADD CONSTRAINT pk_usage PRIMARY KEY (id);
ALTER TABLE ONLY public.volcano
    ADD CONSTRAINT pk_volcano PRIMARY KEY (id);
ALTER TABLE ONLY public.usage
    ADD CONSTRAINT uq_usage_uid UNIQUE (uid, rank, period);
CREATE INDEX ix_connections_peer_id ON public.connections USING btree (peer_id);
CREATE INDEX ix_due_at ON public.due USING btree (at);
CREATE INDEX ix_job_labels_name ON public.job_labels USING btree (name, value, job_id);
CREATE INDEX ix_jobs_finished_at ON public.jobs USING btree (finished_at);
CREATE INDEX ix_jobs_owner ON public.jobs USING btree (owner_user, id);
CREATE INDEX ix_jobs_project ON public.jobs USING btree (owner_project, id);
CREATE INDEX ix_jobs_queue ON public.jobs USING btree (queue, state, created_at);
CREATE INDEX ix_jobs_revision ON public.jobs USING btree (revision);
CREATE INDEX ix_jobs_state ON public.jobs USING btree (state, id);
CREATE INDEX ix_links_job_id ON public.links USING btree (job_id);
CREATE INDEX ix_revocations_at ON public.revocations USING btree (at);
CREATE INDEX ix_revocations_revision ON public.revocations USING btree (revision);
CREATE INDEX ix_sessions_ended_at ON public.sessions USING btree (ended_at);
CREATE INDEX ix_sessions_hub_id ON public.sessions USING btree (hub_id);
CREATE INDEX ix_sessions_job_id ON public.sessions USING btree (job_id);
CREATE INDEX ix_sessions_revision ON public.sessions USING btree (revision);
CREATE INDEX ix_transitions_job_id ON public.transitions USING btree (job_id, id);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT fk_attempts_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.companions
    ADD CONSTRAINT fk_companions_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.connections
    ADD CONSTRAINT fk_connections_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.due
    ADD CONSTRAINT fk_due_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.extensions
    ADD CONSTRAINT fk_extensions_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.hooks
    ADD CONSTRAINT fk_hooks_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.job_labels
    ADD CONSTRAINT fk_job_labels_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.runs
    ADD CONSTRAINT fk_runs_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT fk_sessions_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.transitions
    ADD CONSTRAINT fk_transitions_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
